import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { Finding } from '../../../src/floor/finding.ts';
import { probeDirectory } from '../../../src/storage/directory/probe-directory.ts';
import { newDirectory } from '../grounds.ts';

const of = (findings: Finding[], what: string) => findings.find((finding) => finding.what === what);
const bad = (findings: Finding[]) => findings.filter(({ level }) => level === 'wrong');

describe('the probe of a directory', () => {
  test('the probe of a directory that works finds nothing wrong, and leaves nothing behind', async () => {
    const ground = await newDirectory();
    const findings = await Array.fromAsync(probeDirectory({ path: ground.path }));
    expect(findings.map(({ level }) => level)).toEqual(findings.map(() => 'ok'));
    expect(await ground.leftovers()).toEqual([]);
    expect(await Array.fromAsync(ground.storage.list(''))).toEqual([]);
    await ground.clear();
  });

  test('the probe of a directory that does not exist does not create it', async () => {
    const ground = await newDirectory();
    const path = join(dirname(ground.path), 'not', 'there');
    const findings = await Array.fromAsync(probeDirectory({ path }));
    expect(findings).toMatchObject([{ level: 'note', remedy: 'the first start makes it' }]);
    expect(await readdir(dirname(ground.path))).toEqual(['mirror']);
    await ground.clear();
  });

  test('the probe of a directory reports a file in its place', async () => {
    const ground = await newDirectory();
    const path = join(dirname(ground.path), 'file');
    await writeFile(path, '');
    expect(bad(await Array.fromAsync(probeDirectory({ path })))).toMatchObject([{ what: 'objects' }]);
    await ground.clear();
  });

  test('the probe of a directory reports another mirror id than that of the records, or none', async () => {
    const ground = await newDirectory();
    const look = () => Array.fromAsync(probeDirectory({ path: ground.path }, 'the-id-we-know'));
    expect(of(await look(), 'mirror id')).toMatchObject({ level: 'wrong', found: 'there is no object _mirror/id' });
    await mkdir(join(ground.path, '_mirror'), { recursive: true });
    await writeFile(join(ground.path, '_mirror/id'), 'another\n');
    expect(of(await look(), 'mirror id')).toMatchObject({
      level: 'wrong',
      remedy: expect.stringMatching(/STORAGE_URL/),
    });
    await writeFile(join(ground.path, '_mirror/id'), 'the-id-we-know\n');
    expect(of(await look(), 'mirror id')).toMatchObject({ level: 'ok' });
    const byNew = await Array.fromAsync(probeDirectory({ path: ground.path }));
    expect(of(byNew, 'mirror id')).toMatchObject({
      level: 'wrong',
      remedy: expect.stringMatching(/asset-mirror rebuild/),
    });
    await ground.clear();
  });
});
