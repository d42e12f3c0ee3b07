// @module-tag slow
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Browser, Page } from 'puppeteer-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sidecarKeys } from '../../src/storage/keys.ts';
import { chromium, flawsOf, sheetsOf, skipped, startChromium } from '../support/chromium.ts';
import { dress, handsOn, openPage, signIn } from '../support/dashboard.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** A directory for pictures; without it, none are taken. */
const PICTURES = process.env.DASHBOARD_PICTURES;

let scene: Scene;
let chrome: Browser;
let page: Page;
let complaints: string[];
let hands: ReturnType<typeof handsOn>;
let film: string;
let broken: string;

describe.skipIf(!chromium)(`the page Assurance${skipped}`, () => {
  beforeAll(async () => {
    [scene, chrome] = await Promise.all([newScene({ environment: { SCRUB_CYCLE: '90d' } }), startChromium()]);
    film = await scene.film();
    await scene.upload({ name: 'notes.txt' });
    broken = await scene.upload({ name: 'broken.bin' });
    await scene.resync();
    await scene.mirror.quiet();
    await scene.checked();
    await scene.mirror.api('POST', '/verify', { inventory: true });
    await until('an inventory', async () => (await assurance()).inventory);
    await scene.checked();
    // As after many attempts at a file that the library no longer serves.
    await scene.query(`UPDATE assets SET state = 'failed', reason = '{"code":"http_status","request":"a file","status":410}',
      media = NULL, bytes = NULL, record_key = NULL, next_at = NULL, size = 5000000 WHERE id = '${broken}'`);
    await drill();
    const opened = await openPage(chrome, { width: 1280 });
    ({ page, complaints } = opened);
    hands = handsOn(opened);
    await signIn(page, scene.ground.publicUrl);
    complaints.splice(0);
  });
  afterAll(async () => {
    await chrome?.close();
    await scene?.close();
  });

  const assurance = () => scene.mirror.api('GET', '/assurance');
  async function drill() {
    const { id } = await scene.mirror.api('POST', '/drills', {});
    return until('the drill', async () => {
      const found = await scene.mirror.api('GET', `/drills/${id}`);
      return found.finishedAt && found;
    });
  }
  const go = (hash: string) => page.evaluate(`location.hash = ${JSON.stringify(hash)}`);

  /** The flaws of the page at all sizes, with pictures. */
  async function flaws(name: string): Promise<string[]> {
    const found: string[] = [];
    for (const [width, isDark] of [
      [1280, false],
      [1280, true],
      [390, false],
      [390, true],
    ] as const) {
      await dress(page, { width, isDark });
      found.push(...(await flawsOf(page)).map((flaw) => `${width}: ${flaw}`));
      if (PICTURES) {
        await mkdir(PICTURES, { recursive: true });
        const path = join(PICTURES, `${name}-${width}${isDark ? '-dark' : ''}.png`) as `${string}.png`;
        await page.screenshot({ path, fullPage: true });
      }
    }
    await dress(page, { width: 1280 });
    return found;
  }

  test('the API says what is missing and why, with the evidence', async () => {
    const { inventory } = await assurance();
    expect(await assurance()).toMatchObject({
      connectionId: null,
      completeness: {
        ...{ ok: false, expected: 3, mirrored: 2 },
        missing: [{ state: 'failed', skipped: false, assets: 1, bytes: 5_000_000, reason: { code: 'http_status' } }],
      },
      onlyInLibrary: { ok: false, assets: 1, bytes: 5_000_000, unknownSize: 0 },
      freshness: { ok: true, connections: 1, late: 0, neverSynced: 0, oldestSync: expect.any(String) },
      verification: { ok: true, cycle: 90 * 86_400_000, oldest: expect.any(String), onTime: true },
      inventory: { ok: true, key: `_mirror/manifests/${String(inventory.number).padStart(8, '0')}.json` },
      drill: { ok: true, status: 'passed', lost: 0 },
      ...{ findings: { objects: 0 }, mirrorId: expect.any(String), version: expect.any(String) },
    });
    expect(inventory.keyId).toMatch(/^[0-9a-f]{64}$/);
    expect(await scene.mirror.api('GET', `/assurance?connectionId=${scene.connectionId}`)).toMatchObject({
      connectionId: scene.connectionId,
      completeness: { expected: 3, mirrored: 2 },
      verification: { oldest: expect.any(String), unverifiable: 0 },
    });
    await scene.query(`UPDATE assets SET unverifiable_at = now() WHERE id = '${film}'`);
    expect(await scene.mirror.api('GET', `/assurance?connectionId=${scene.connectionId}`)).toMatchObject({
      verification: { ok: false, onTime: true, unverifiable: 1 },
      questions: expect.arrayContaining([
        expect.objectContaining({
          code: 'verification',
          text: 'Each file is read back within 90 days; 1 file cannot be verified',
        }),
      ]),
    });
    await scene.query(`UPDATE assets SET unverifiable_at = NULL WHERE id = '${film}'`);
    await expect(scene.mirror.api('GET', '/assurance?connectionId=nobody')).rejects.toThrow('connection_not_found');
  });

  test('the page Assurance answers six questions, each with a date and its evidence', async () => {
    await go('#/assurance');
    await hands.shows('2 of 3 assets with a file are mirrored');
    await hands.shows('4.8 MiB in 1 asset');
    await hands.shows('The active connection was synced in time');
    await hands.shows('Each file is read back within 90 days');
    await hands.shows(/Inventory \d+ of .* is signed/);
    await hands.shows('All records are restored in');
    await hands.shows((await assurance()).inventory.keyId);
    expect(await flaws('assurance')).toEqual([]);
    await page.locator('xpath/.//a[normalize-space()="Manifest"]').click();
    expect(await page.evaluate('location.hash')).toBe('#/assurance');
  });

  test('the page Assurance prints on paper, without buttons, with exact times', async () => {
    await page.emulateMediaType('print');
    const shown = await page.evaluate(
      `[...document.querySelectorAll('button, header.top')].filter((it) => it.checkVisibility()).length`,
    );
    expect(shown).toBe(0);
    // The names of links are no evidence on paper.
    const links = `[...document.querySelectorAll('.assurance td[data-label="Evidence"]')].filter((it) => it.checkVisibility()).length`;
    expect(await page.evaluate(links)).toBe(0);
    const { mirrorId, version } = await assurance();
    await hands.shows(`Mirror ${mirrorId}, asset-mirror ${version}`);
    const pdf = await page.pdf({ format: 'A4' });
    expect(sheetsOf(pdf)).toBeLessThanOrEqual(3);
    if (PICTURES) {
      await writeFile(join(PICTURES, 'assurance.pdf'), pdf);
      await page.setViewport({ width: 680, height: 1000 });
      await page.screenshot({ path: join(PICTURES, 'assurance-print.png') as `${string}.png`, fullPage: true });
    }
    await page.emulateMediaType('screen');
  });

  test('Assurance is not good while findings of a verification are not repaired', async () => {
    const { key } = await scene.mirror.asset(film);
    const content = (await contentOf(scene.storage, key))!;
    await scene.storage.put(key, Buffer.alloc(content.length, 'x'));
    const verify = async (how: object) => {
      const { id } = await scene.mirror.api('POST', '/verify', how);
      await until('the verification', async () => (await scene.mirror.api('GET', `/verify/${id}`)).status === 'done');
      return id;
    };
    const id = await verify({ deep: true });
    const { completeness, verification, findings, questions } = await assurance();
    expect(findings).toMatchObject({ objects: 1, assets: 1, examples: [{ assetId: film, key, verificationId: id }] });
    expect([completeness.ok, verification.ok]).toEqual([false, false]);
    const intact = questions.find(({ code }: { code: string }) => code === 'verification');
    expect(intact.text).toMatch(/^1 object missing, different or unreadable in the bucket since /);
    await go('#/');
    await go('#/assurance');
    await hands.shows('Problems in the bucket that are not repaired yet');
    await hands.shows('Damaged');
    expect(await flaws('assurance-damaged')).toEqual([]);
    await page.locator('xpath/.//td[@data-label="Evidence"]//a[normalize-space()="Verification"]').click();
    await until('the evidence', async () => (await page.evaluate('location.hash')) === `#/verify/${id}`);

    await verify({ deep: true, repair: true });
    await until('the repair', async () => (await assurance()).findings.objects === 0);
    await scene.mirror.quiet();
    expect(await assurance()).toMatchObject({ verification: { ok: true } });
  });

  test('an inventory is not proven if its manifest is missing in the bucket', async () => {
    const { key } = (await assurance()).inventory;
    const envelope = (await contentOf(scene.storage, key))!;
    await scene.storage.remove(key);
    expect((await assurance()).inventory).toMatchObject({ ok: false, inBucket: 'missing' });
    await go('#/');
    await go('#/assurance');
    await hands.shows(/The manifest of inventory \d+ is missing in the bucket/);
    await scene.storage.put(key, 'another');
    expect((await assurance()).inventory).toMatchObject({ ok: false, inBucket: 'different' });
    await scene.storage.put(key, envelope);
    expect((await assurance()).inventory).toMatchObject({ ok: true, inBucket: 'same' });
  });

  test('the page Assurance shows a failed drill, why it failed, and what would be lost', async () => {
    await scene.storage.remove(sidecarKeys.record((await scene.mirror.asset(film)).key));
    const { id } = await drill();
    await go('#/assurance');
    await hands.shows('1 record is missing or cannot be read');
    const failed = `[...document.querySelectorAll('.assurance .pill.bad')].map((it) => it.textContent)`;
    expect(await page.evaluate(failed)).toEqual(['Failed']);
    await go(`#/drills/${id}`);
    await hands.shows('Would be lost');
    await hands.shows('1 record');
    await hands.shows('record missing, since');
    expect(await flaws('drill-failed')).toEqual([]);
    await scene.query(`UPDATE drills SET report = jsonb_set(report, '{recovery,mediaMs}', 'null') WHERE id = '${id}'`);
    await go('#/assurance');
    await go(`#/drills/${id}`);
    await hands.shows('unknown: no file was read');
    await go('#/assurance');
    await hands.press('Start a drill');
    await hands.shows('Failed');
    expect(complaints).toEqual([]);
  });
});
