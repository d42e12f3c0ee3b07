// @module-tag slow
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { marks } from './chaos/checks/marks.ts';
import { createContent } from './chaos/content.ts';
import { faultKinds } from './chaos/faults.ts';
import { makePlan, type Options, type PlannedAsset } from './chaos/plan.ts';

const main = join(import.meta.dirname, 'chaos/main.ts');

/** The fault suite, as `npm run chaos` runs it. */
async function chaos(...options: string[]): Promise<{ code: number; output: string }> {
  const child = spawn(process.execPath, [main, ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const [code] = await once(child, 'close');
  return { code, output };
}

describe.runIf(inject('redis'))('the fault suite', () => {
  const store = inject('s3modern') ? 's3' : 'directory';

  test('the fault suite passes twenty faults without a loss or a needless download', { timeout: 900_000 }, async () => {
    const { code, output } = await chaos('--seed', '31', '--assets', '300', '--faults', '20', '--store', store);
    expect(code, output).toBe(0);
  });

  test('the fault suite finds objects that were lost, added or changed', { timeout: 600_000 }, async () => {
    const few = ['--seed', '4', '--assets', '20', '--faults', '1', '--store', 'directory', '--sabotage'];
    const { code, output } = await chaos(...few);
    expect(code, output).toBe(1);
    expect(output).toMatch(/has other bytes/);
    expect(output).toMatch(/has no bytes of \d+/);
    expect(output).toMatch(/nobody knows .*stray/);
    expect(output).toMatch(/its record says name/);
    expect(output).toMatch(/is in no record|is not in the records/);
    expect(output).toContain('Rerun: npm run chaos -- --seed 4');
  });
});

describe('the plan of the fault suite', () => {
  const options: Options = { seed: 7, assets: 500, faults: 100, store: 's3' };

  test('the plan of the fault suite is the same for the same seed, and differs for another', () => {
    const plan = JSON.stringify(makePlan(options));
    expect(JSON.stringify(makePlan(options))).toBe(plan);
    expect(JSON.stringify(makePlan({ ...options, seed: 8 }))).not.toBe(plan);
  });

  test('the plan of the fault suite has every fault once before any repeats, and every kind of asset', () => {
    for (const store of ['s3', 'directory'] as const) {
      const kinds = faultKinds.filter(({ only }) => only === undefined || only === store).map(({ name }) => name);
      const { faults, assets } = makePlan({ ...options, store });
      expect(new Set(faults.slice(0, kinds.length).map(({ kind }) => kind.name))).toEqual(new Set(kinds));
      expect(new Set(assets.map(({ kind }) => kind)).size).toBe(7);
      expect(new Set(assets.map(({ date }) => date.kind)).size).toBe(6);
    }
  });
});

describe('the check of high-water marks', () => {
  const { assets } = makePlan({ seed: 7, assets: 20, faults: 1, store: 's3' });
  const content = createContent();
  const [first, second] = assets.map((asset: PlannedAsset) => {
    const plan = { ...asset, companyId: 'north', date: { kind: 'slow' as const, ago: 60_000 - content.held.size } };
    return content.add(plan, 0);
  });
  const mark = second!.uploadDate;
  const look = (...ids: string[]) =>
    marks(
      { marks: [{ user: 'ines', company: 'north', highWaterMark: mark }], ids: new Set(ids) },
      content.dates,
      content.held,
      'now',
    );

  test('the fault suite reports a high-water mark that is ahead of an asset without a record', () => {
    expect(first!.uploadDate).toBeLessThan(mark);
    expect(look(first!.plan.id, second!.plan.id).problems).toEqual([]);
    expect(look(second!.plan.id).problems).toEqual([
      `now: the high-water mark of ines at north is ahead of ${first!.plan.id}, which is in no record`,
    ]);
  });
});

test('test/chaos/README.md has every fault of the suite, and names test files that exist', () => {
  const table = readFileSync(join(import.meta.dirname, 'chaos/README.md'), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('| `'));
  const names = table.flatMap((line) => [...line.split('|')[1]!.matchAll(/`([\w-]+)`/g)].map((match) => match[1]));
  expect(names.toSorted()).toEqual(faultKinds.map(({ name }) => name).toSorted());
  const files = new Set(
    readdirSync(import.meta.dirname, { recursive: true }).map((path) => String(path).split('/').at(-1)),
  );
  for (const [name] of table.join('\n').matchAll(/[\w-]+\.test\.ts/g)) expect(files).toContain(name);
});
