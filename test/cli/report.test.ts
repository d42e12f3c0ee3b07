import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isSignedBy } from '../../src/floor/signing.ts';
import { publicKeyAt } from '../../src/storage/keys.ts';
import { chromium, flawsOf, sheetsOf, startChromium } from '../support/chromium.ts';
import { dress, openPage } from '../support/dashboard.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

const PICTURES = process.env.DASHBOARD_PICTURES;
const run = promisify(execFile);
const month = new Date().toISOString().slice(0, 7);

let scene: Scene;
let out: string;
beforeAll(async () => {
  scene = await newScene({ environment: { SCRUB_CYCLE: '90d' } });
  out = await mkdtemp(join(tmpdir(), 'asset-mirror-report-'));
  await scene.film();
  await scene.upload({ name: 'notes <b>.txt', content: { text: 'notes' } });
  await scene.resync();
  await scene.mirror.quiet();
  await scene.mirror.api('POST', '/verify', { inventory: true });
  await scene.checked();
  const { id } = await scene.mirror.api('POST', '/drills', {});
  await until('the drill to end', async () => (await scene.mirror.api('GET', `/drills/${id}`)).finishedAt);
});
afterAll(async () => {
  await scene?.close();
  if (out) await rm(out, { recursive: true, force: true });
});

/** Runs the command; a failure has its exit code and output. */
async function report(...words: string[]): Promise<{ code: number; output: string }> {
  const env = { ...spawned, ...scene.ground.environment, ASSET_MIRROR_URL: scene.ground.publicUrl };
  const done = await run(process.execPath, ['src/main.ts', 'report', ...words, '--out', out], { env }).catch(
    (it) => it,
  );
  return { code: done.code ?? 0, output: `${done.stdout}${done.stderr}` };
}
const read = async (name: string) => JSON.parse(await readFile(join(out, name), 'utf8'));

test('the report of a month is signed by the key of the inventories', async () => {
  const { code, output } = await report('--month', month);
  expect(code, output).toBe(0);
  const { report: text, sha256, keyId, signature } = await read(`asset-mirror-${month}.json`);
  expect(output).toContain(`Signed by the key ${keyId}`);
  expect(createHash('sha256').update(text).digest('hex')).toBe(sha256);
  const { publicKey } = JSON.parse((await contentOf(scene.storage, publicKeyAt(keyId)))!.toString());
  expect(isSignedBy(publicKey, text, signature)).toBe(true);
  expect(isSignedBy(publicKey, text.replace('"mirrored": 2', '"mirrored": 3'), signature)).toBe(false);
  expect(JSON.parse(text)).toMatchObject({
    ...{ version: 1, kind: 'asset-mirror assurance report', month, isMonthOver: false, connection: null },
    inMonth: { mirrored: 2, replaced: 0, gone: 0, erased: 0, replacedSince: expect.any(String) },
    lastInventory: { assets: 2, byState: { mirrored: 2 } },
    firstKnownInventory: { number: 1 },
    inventories: [{ number: expect.any(Number), sha256: expect.stringMatching(/^[0-9a-f]{64}$/), keyId }],
    drills: [{ status: 'passed', lost: 0 }],
    verifications: expect.arrayContaining([
      expect.objectContaining({ status: 'done', connectionId: null, differences: 0, finishedAt: expect.any(String) }),
    ]),
    now: { completeness: { ok: true, expected: 2, mirrored: 2 } },
  });
});

test('the report of one connection names it, and has files of its own', async () => {
  const { code, output } = await report('--month', month, '--connection', scene.connectionId.slice(0, 8), '--json');
  expect(code, output).toBe(0);
  const name = `asset-mirror-${month}-${scene.connectionId}`;
  expect(JSON.parse(output)).toMatchObject({ json: join(out, `${name}.json`), page: join(out, `${name}.html`) });
  const { report: text } = await read(`${name}.json`);
  expect(JSON.parse(text)).toMatchObject({
    connection: { id: scene.connectionId, userEmail: expect.any(String) },
    inMonth: { mirrored: 2, erased: null },
    now: { connectionId: scene.connectionId, completeness: { mirrored: 2 } },
  });
  expect((await readdir(out)).filter((file) => file.startsWith(name))).toHaveLength(2);
});

test('a month that has not begun, and one that is none, are refused', { tags: 'slow' }, async () => {
  const next = await report('--month', '9999-01');
  expect([next.code, next.output]).toEqual([2, expect.stringContaining('The month 9999-01 has not begun')]);
  expect((await report('--month', '2026-13')).output).toContain('must be a month such as 2026-10');
  await expect(scene.mirror.api('GET', '/assurance/report?month=9999-01')).rejects.toThrow('month_in_future');
});

test('a month before the first day of the mirror is refused', async () => {
  const { code, output } = await report('--month', '2020-01');
  const [first] = await scene.query<{ at: Date }>('SELECT min(connected_at) AS at FROM connections');
  expect([code, output]).toEqual([
    2,
    expect.stringContaining(
      `This mirror has nothing of 2020-01: its first day is ${first!.at.toISOString().slice(0, 10)} (UTC)`,
    ),
  ]);
});

test.skipIf(!chromium)(
  'the page of a report needs no other file, fits all screens, and prints',
  { tags: 'slow' },
  async () => {
    await report('--month', month);
    const chrome = await startChromium();
    try {
      const { page, complaints } = await openPage(chrome, { width: 1280 });
      const requests: string[] = [];
      page.on('request', (request) => requests.push(request.url()));
      await page.goto(`file://${out}/asset-mirror-${month}.html`);
      const shown = (await page.evaluate('document.body.innerText')) as string;
      for (const words of [
        'Assurance report',
        '2 of 2 assets with a file are mirrored',
        'Ed25519, by the key',
        'assurance.md#check-a-report',
        'The month is not over',
        'Verifications',
        'Inventories',
      ]) {
        expect(shown).toContain(words);
      }
      for (const [width, isDark] of [
        [1280, false],
        [390, false],
        [390, true],
      ] as const) {
        await dress(page, { width, isDark });
        expect(await flawsOf(page)).toEqual([]);
        const path = `${PICTURES}/report-${width}${isDark ? '-dark' : ''}.png` as `${string}.png`;
        if (PICTURES) await page.screenshot({ path, fullPage: true });
      }
      // On paper, dates are not broken, nor rows, and headings are not left alone.
      await page.emulateMediaType('print');
      const styles = `[['td .whole', 'white-space'], ['tbody tr', 'break-inside'], ['h2', 'break-after']]
      .map(([which, name]) => getComputedStyle(document.querySelector(which)).getPropertyValue(name))`;
      expect(await page.evaluate(styles)).toEqual(['nowrap', 'avoid', 'avoid']);
      await page.emulateMediaType('screen');
      const pdf = await page.pdf({ format: 'A4' });
      expect(sheetsOf(pdf)).toBeLessThanOrEqual(3);
      if (PICTURES) {
        await writeFile(join(PICTURES, 'report.pdf'), pdf);
        await page.emulateMediaType('print');
        await page.setViewport({ width: 680, height: 1000 });
        await page.screenshot({ path: `${PICTURES}/report-print.png`, fullPage: true });
      }
      expect([requests.length, complaints]).toEqual([1, []]);
    } finally {
      await chrome.close();
    }
  },
);

test('the report shows what is damaged, and failed drills as failed', async () => {
  await scene.query(`INSERT INTO events (kind, asset_id, data, at)
    SELECT 'asset.damaged', id, '{"objects":[{"key":"film.mov","reason":{"code":"missing_object","kind":"media"}}],"repaired":false}', now() + interval '1 second'
    FROM assets LIMIT 1`);
  await scene.query(`UPDATE drills SET status = 'failed'`);
  await report('--month', month);
  const page = await readFile(join(out, `asset-mirror-${month}.html`), 'utf8');
  expect(page).toContain('<i class="bad">Damaged</i>');
  expect(page).toContain('Problems in the bucket that are not repaired yet');
  expect(page).toContain('film.mov');
  expect(page.match(/<i class="bad">Failed<\/i>/g)).toHaveLength(2);
  await scene.query(`DELETE FROM events WHERE kind = 'asset.damaged'`);
  await scene.query(`UPDATE drills SET status = 'passed'`);
});

test('after a rebuild, the report says that earlier inventories are only in the bucket', async () => {
  await scene.query('DELETE FROM manifests');
  await report('--month', month);
  const { report: text } = await read(`asset-mirror-${month}.json`);
  expect(JSON.parse(text)).toMatchObject({ inventories: [], firstKnownInventory: null, lastInventory: null });
  const page = await readFile(join(out, `asset-mirror-${month}.html`), 'utf8');
  expect(page).toContain('The database has no inventories. Any others are in the bucket');
  expect(page).not.toContain('None was written');
});

test('without a key the report says that it is not signed', { tags: 'slow' }, async () => {
  await scene.restart({ SIGNING_KEY: '' });
  const { code, output } = await report('--month', month);
  expect([code, output]).toEqual([0, expect.stringContaining('It is not signed')]);
  expect(await read(`asset-mirror-${month}.json`)).toMatchObject({ keyId: null, signature: null });
  expect(await readFile(join(out, `asset-mirror-${month}.html`), 'utf8')).toContain('This report is not signed.');
});
