import { expect, test } from 'vitest';
import { manifestLines, missingList } from '../../../src/verify/export/export-list.ts';

test('no value of a manifest is a formula in a spreadsheet: neither a path, an id or a key, nor what users wrote', () => {
  const facts = { name: '=1+1', type: null, mimeType: null, company: '@c', companyId: '-c', uploadDate: null };
  const asset = {
    assetId: '+a',
    files: [{ to: '=1+1.mp4', at: '-c/_/+a/=1+1.mp4', bytes: 5, crc32: '00000000' }],
    ...{ bytes: 5, date: new Date() },
    facts: { ...facts, project: null, projectId: null },
  };
  expect(manifestLines(asset)).toBe("'=1+1.mp4,5,00000000,'+a,'=1+1,,,'@c,'-c,,,,'-c/_/+a/=1+1.mp4\r\n");
  expect(missingList([{ assetId: '=a', problem: 'x' }])).toBe("assetId,reason\r\n'=a,x\r\n");
});
