import { expect, test } from 'vitest';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

/** A film with transcript and thumbnail in the bucket. */
async function mirroredFilm(scene: Scene): Promise<{ id: string; key: string }> {
  const id = await scene.film();
  await scene.resync();
  await scene.mirror.quiet();
  await scene.checked();
  const { key } = await scene.mirror.asset(id);
  return { id, key };
}

test('sidecars that neither the bucket nor the library has are reported once, and what is intact stays', {
  tags: 'slow',
}, async () => {
  const scene = await newScene();
  try {
    const { id, key } = await mirroredFilm(scene);
    const verified = async () => {
      const { id: run } = await scene.mirror.api('POST', '/verify', { repair: true, deep: true });
      await scene.checked();
      await scene.mirror.quiet();
      return (await scene.mirror.api('GET', `/verify/${run}`)).counts;
    };
    const { foreign } = await verified();
    await scene.admin.changeAsset(id, { hasTranscript: false, transcript: null, thumbnail: false });
    await scene.storage.remove(`${key}.txt`);
    await scene.storage.remove(`${key}.thumbnail.png`);
    await scene.storage.put(`${key}.transcript.json`, 'damaged');
    expect(await verified()).toMatchObject({ missing: 2, different: 1, repaired: 1 });
    const sidecars = { transcript: 'gave_up', thumbnail: 'none', reason: { code: 'no_transcript' } };
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', ...sidecars });
    // What is damaged is better than nothing.
    expect((await scene.keys(id)).sort()).toEqual([key, `${key}.asset.json`, `${key}.transcript.json`, `${key}.vtt`]);
    expect(await scene.record(id)).toMatchObject({ transcript: { keys: [`${key}.vtt`] }, thumbnail: null });
    const logged = scene.mirror.lines.filter(({ event, assetId }) => event === 'sidecars.given_up' && assetId === id);
    expect(logged).toMatchObject([{ lost: [`${key}.txt`, `${key}.transcript.json`, `${key}.thumbnail.png`] }]);
    expect(await verified()).toMatchObject({ missing: 0, different: 0, foreign: foreign + 1, repaired: 0 });
  } finally {
    await scene.close();
  }
});

test('a second verification does not put off the end of a repair whose transcript does not come', {
  tags: 'slow',
}, async () => {
  const scene = await newScene();
  try {
    const { id, key } = await mirroredFilm(scene);
    await scene.admin.changeAsset(id, { transcript: null });
    await scene.storage.remove(`${key}.vtt`);
    const deadline = async () => (await scene.mirror.store.assets.get(id))!.transcriptDeadline;
    await scene.mirror.api('POST', '/verify', { repair: true });
    const first = await until('the repair', deadline);
    await scene.mirror.api('POST', '/verify', { repair: true });
    await scene.checked();
    await scene.ground.endWaits();
    expect(await until('a check after it', deadline)).toEqual(first);
  } finally {
    await scene.close();
  }
});
