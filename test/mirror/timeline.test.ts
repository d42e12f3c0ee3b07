import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const MiB = 2 ** 20;
let scene: Scene;
beforeAll(async () => {
  scene = await newScene({ environment: { TRANSCRIPT_DELAY: '1s' } });
});
afterAll(async () => {
  await scene?.close();
});

interface Entry {
  at: string;
  what: string;
  text: string;
  syncId: string | null;
}
const explained = (id: string): Promise<{ timeline: Entry[]; explanation: string[] }> =>
  scene.mirror.api('GET', `/assets/${id}`);
const whats = (timeline: Entry[]) => timeline.map(({ what }) => what);

describe('the timeline of an asset', () => {
  test('the timeline of an asset lists all steps in order, with their sync and without links', {
    tags: 'slow',
  }, async () => {
    const id = await scene.film({ content: { seed: 'film', size: 40 * MiB } });
    await scene.admin.setFaults(
      { endpoint: 'asset', assetId: id, status: 500, times: 3 },
      { endpoint: 'media', assetId: id, expireLinks: true, skip: 2, times: 1 },
    );
    const syncId = await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    await scene.admin.clearFaults();

    const { timeline, explanation } = await explained(id);
    const times = timeline.map(({ at }) => Date.parse(at));
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    const entries = whats(timeline);
    const order = [
      'listed.new',
      'attempt.again',
      'step.library_answered',
      'step.began',
      'step.link_renewed',
      'step.parts_stored',
      'step.stored',
      'step.thumbnail',
      'step.recorded',
      'attempt.mirrored',
      'step.transcript',
    ];
    let place = -1;
    for (const what of order) {
      place = entries.indexOf(what, place + 1);
      expect(place, `${what} in ${entries.join(' ')}`).toBeGreaterThanOrEqual(0);
    }
    expect(timeline[0]).toMatchObject({ what: 'listed.new', syncId, text: 'seen for the first time: to be mirrored' });
    expect(timeline.find(({ what }) => what === 'attempt.again')!.text).toMatch(
      /^attempt failed: .*500.*; next try at 20/,
    );
    expect(timeline.find(({ what }) => what === 'step.parts_stored')!.text).toBe('stored 3 of 3 parts');
    expect(timeline.find(({ what }) => what === 'step.stored')!.text).toMatch(/40\.0 MiB, .*crc32 [0-9a-f]{8}/);
    expect(explanation[0]).toMatch(/^It is in the bucket since .*clip\.mp4 \(40\.0 MiB, the original, /);
    expect(JSON.stringify(timeline)).not.toMatch(/svc[a-z]_|https?:|sig=/);

    await scene.admin.changeAsset(id, { name: 'renamed.mp4', tags: ['new'] });
    await scene.resync();
    await until('the record', async () => (await scene.record(id))?.asset.name === 'renamed.mp4');
    await scene.mirror.quiet();
    const changed = (await explained(id)).timeline.find(({ what }) => what === 'listed.changed')!;
    expect(changed.text).toBe('seen with a changed name and tags: its record is written again');
    expect(changed.syncId).not.toBe(syncId);
  });

  test('the timeline of an asset continues after a failure, changed settings and a retry by an operator', {
    tags: 'slow',
  }, async () => {
    const { mirror, connectionId } = scene;
    const id = await scene.upload();
    await scene.admin.setFaults({ endpoint: 'asset', assetId: id, body: { asset: { id, size: 'large' } } });
    await scene.resync();
    await mirror.assetIn(id, 'failed');
    let { timeline, explanation } = await explained(id);
    expect(timeline.at(-1)).toMatchObject({ what: 'attempt.failed', text: expect.stringMatching(/^failed: .*size/) });
    expect(explanation).toEqual([
      expect.stringMatching(/^It failed after 1 attempts?: .*size/),
      `The next full sync tries again. To retry now: \`asset-mirror retry ${id}\`.`,
    ]);

    // A busy worker applies changed filters after the answer.
    await mirror.api('PATCH', `/connections/${connectionId}`, { exclude: { assetTypes: ['documents'] } });
    await until('the filter to be applied', async () => (await mirror.asset(id)).skipped);
    ({ timeline, explanation } = await explained(id));
    expect(whats(timeline).at(-1)).toBe('settings.skipped');
    expect(explanation[0]).toBe(`It is skipped by a filter of connection ${connectionId}: type documents.`);
    await mirror.api('PATCH', `/connections/${connectionId}`, { exclude: null });
    await until('the filter to be gone', async () => !(await mirror.asset(id)).skipped);
    // It was due again, and the full sync after that change retries it, too.
    await scene.checked();
    await mirror.assetIn(id, 'failed');
    // The answer to the retry comes before the asset is mirrored.
    await scene.admin.setFaults({ endpoint: 'asset', assetId: id, latency: 3000 });
    await mirror.api('POST', `/assets/${id}/retry`);
    await mirror.assetIn(id, 'mirrored');
    await scene.admin.clearFaults();
    ({ timeline } = await explained(id));
    const entries = whats(timeline);
    expect(entries).toEqual(expect.arrayContaining(['operator.retryAsset', 'attempt.mirrored']));
    // The full sync may list the asset before a worker applies the changed filters.
    const afterSkip = entries.slice(entries.indexOf('settings.skipped') + 1);
    expect(afterSkip[0]).toMatch(/^(settings\.unskipped|listed\.changed)$/);
    expect(timeline.map(({ text }) => text)).toContain('ADMIN_TOKEN retried it');
    expect(entries.indexOf('operator.retryAsset')).toBeLessThan(entries.lastIndexOf('attempt.mirrored'));
  });

  test('the error for an unknown asset says what was searched', async () => {
    await expect(explained('nothing')).rejects.toThrow(
      /404 .*asset_not_found.*Searched: 1 company of 1 active connection, each synced at 20.*resync CONNECTION --full/,
    );
  });
});
