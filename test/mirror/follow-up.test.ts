import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { ask } from '../support/database.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const spoken = {
  language: 'de',
  durationSec: 3,
  text: 'Grüß Gott',
  vtt: 'WEBVTT\n\n00:00.000 --> 00:03.000\nGrüß Gott\n',
  words: null,
};

describe('sidecars', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene();
  });
  afterEach(async () => {
    await scene.admin.clearFaults();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const video = { name: 'clip.mp4', mimeType: 'video/mp4', assetType: 'videos' };
  const transcriptIs = (id: string, state: string) =>
    until(`the transcript to be ${state}`, async () => (await scene.mirror.asset(id))?.transcript === state);
  const asked = async (id: string, endpoint: string) =>
    (await scene.admin.requests({ assetId: id })).filter((request) => request.endpoint === endpoint);

  test('a transcript is fetched once, as JSON, and stored as captions, text and the object as served', async () => {
    const id = await scene.upload({ ...video, hasTranscript: true, transcript: spoken });
    await scene.resync();
    await transcriptIs(id, 'mirrored');
    const { key } = await scene.mirror.asset(id);
    expect((await contentOf(scene.storage, `${key}.vtt`))?.toString()).toBe(spoken.vtt);
    expect((await contentOf(scene.storage, `${key}.txt`))?.toString()).toBe(spoken.text);
    expect(JSON.parse((await contentOf(scene.storage, `${key}.transcript.json`))!.toString())).toEqual({
      assetId: id,
      ...spoken,
    });
    expect((await scene.record(id)).transcript).toEqual({
      state: 'mirrored',
      keys: ['.vtt', '.txt', '.transcript.json'].map((s) => key + s),
    });
    expect(await asked(id, 'transcript')).toHaveLength(1);
  });

  test('a transcript that does not exist yet is requested again, and the media is not', { tags: 'slow' }, async () => {
    const id = await scene.upload({ ...video, hasTranscript: true });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('a second look', async () => (await asked(id, 'transcript')).length >= 2);
    expect((await asked(id, 'transcript'))[0]!.status).toBe(404);
    await scene.admin.changeAsset(id, { transcript: spoken });
    await transcriptIs(id, 'mirrored');
    expect(await asked(id, 'media')).toHaveLength(1);
  });

  test('one error after many follow-up checks does not give up a transcript', { tags: 'slow' }, async () => {
    const id = await scene.upload({ ...video, hasTranscript: true });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('a second look', async () => (await asked(id, 'transcript')).length >= 2);
    await ask(scene.ground.environment.DATABASE_URL!, 'UPDATE assets SET follow_ups = 20');
    // A check asks three times before it fails.
    await scene.admin.addFault({ endpoint: 'asset', assetId: id, status: 502, times: 3 });
    const failed = async () => (await asked(id, 'asset')).filter(({ status }) => status === 502).length === 3;
    await until('a check that fails', async () => {
      await ask(scene.ground.environment.DATABASE_URL!, `UPDATE assets SET next_at = now() WHERE id = '${id}'`);
      return failed();
    });
    await scene.admin.changeAsset(id, { transcript: spoken });
    // A retry during a check changes nothing.
    await until('the transcript', async () => {
      await scene.mirror.api('POST', `/assets/${id}/retry`);
      return (await scene.mirror.asset(id)).transcript === 'mirrored';
    });
    const { timeline } = await scene.mirror.api('GET', `/assets/${id}`);
    expect(timeline.filter(({ what }: { what: string }) => /gave_up/.test(what))).toEqual([]);
  });

  test('a follow-up check while a new file is processing stores none of its sidecars beside the old one', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload({ ...video, hasTranscript: true });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('the first follow-up check', async () => (await asked(id, 'transcript')).length > 0);
    const [record, keys] = [await scene.record(id), await scene.keys(id)];
    // No listing has seen it yet; the next follow-up check does.
    const text = 'another file';
    await scene.admin.changeAsset(id, { status: 'processing', content: { text }, transcript: spoken, thumbnail: true });
    const { assets, replacements } = scene.mirror.store;
    await until('it to be set aside', async () => (await replacements.since(id)) !== undefined);
    await until('the check to end', async () => (await assets.get(id))!.leaseUntil === null);
    expect([await scene.record(id), await scene.keys(id)]).toEqual([record, keys]);
    await scene.admin.changeAsset(id, { status: 'ready' });
    await scene.resync();
    await transcriptIs(id, 'mirrored');
    expect((await scene.media(id))?.toString()).toBe(text);
  });

  test('a transcript is requested only after the asset says that it has one', { tags: 'slow' }, async () => {
    const id = await scene.upload({ ...video, hasTranscript: false, uploadDate: Date.now() - 1000 });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('a second look at the asset', async () => (await asked(id, 'asset')).length >= 3);
    expect(await asked(id, 'transcript')).toEqual([]);
    await scene.admin.changeAsset(id, { hasTranscript: true, transcript: spoken });
    await transcriptIs(id, 'mirrored');
    expect(await asked(id, 'media')).toHaveLength(1);
  });

  test('the next full sync finds the transcript of an old asset', async () => {
    const id = await scene.upload({ ...video, hasTranscript: false });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.mirror.asset(id)).transcript).toBe('none');
    await scene.admin.changeAsset(id, { hasTranscript: true, transcript: spoken });
    await scene.resync();
    await transcriptIs(id, 'mirrored');
  });

  test('a clip without speech is recorded as no_speech, without transcript files', async () => {
    const id = await scene.upload({ ...video, hasTranscript: true, transcript: { noSpeech: true } });
    await scene.resync();
    await transcriptIs(id, 'no_speech');
    expect(await scene.keys(id)).toHaveLength(2);
    expect((await scene.record(id)).transcript).toEqual({ state: 'no_speech', keys: [] });
  });

  test('transcripts are requested for video and audio only', async () => {
    const id = await scene.upload({
      name: 'a.pdf',
      mimeType: 'application/pdf',
      hasTranscript: true,
      transcript: spoken,
    });
    const audio = await scene.upload({
      name: 'a.wav',
      mimeType: 'audio/wav',
      assetType: 'audio',
      hasTranscript: true,
      transcript: spoken,
    });
    await scene.resync();
    await transcriptIs(audio, 'mirrored');
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.mirror.asset(id)).transcript).toBe('none');
    expect(await asked(id, 'transcript')).toEqual([]);
  });

  test('a transcript that breaks its schema is requested again, and the media stays mirrored', async () => {
    const id = await scene.upload({ ...video, hasTranscript: true, transcript: spoken });
    await scene.admin.addFault({
      endpoint: 'transcript',
      assetId: id,
      times: 1,
      status: 200,
      body: { assetId: id, vtt: 7 },
    });
    await scene.resync();
    await transcriptIs(id, 'mirrored');
    expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored' });
  });

  test('a thumbnail that fails is fetched later, and the asset is mirrored without it', { tags: 'slow' }, async () => {
    const id = await scene.upload({ name: 'p.jpg', mimeType: 'image/jpeg', assetType: 'photography', thumbnail: true });
    await scene.admin.addFault({ endpoint: 'thumbnail', assetId: id, times: 2, status: 500 });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await until('the thumbnail', async () => (await scene.mirror.asset(id)).thumbnail === 'mirrored');
    const { key } = await scene.mirror.asset(id);
    expect((await scene.record(id)).thumbnail).toMatchObject({
      key: `${key}.thumbnail.png`,
      bytes: expect.any(Number),
    });
    expect(await asked(id, 'media')).toHaveLength(1);
  });

  test('the next full sync finds a new thumbnail, and the media is not fetched again', async () => {
    const id = await scene.upload({ name: 'late.jpg', mimeType: 'image/jpeg', assetType: 'photography' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.mirror.asset(id)).thumbnail).toBe('none');
    await scene.admin.changeAsset(id, { thumbnail: true });
    await scene.resync({ mode: 'full' });
    await until('the thumbnail', async () => (await scene.mirror.asset(id)).thumbnail === 'mirrored');
    const { key } = await scene.mirror.asset(id);
    expect(await contentOf(scene.storage, `${key}.thumbnail.png`)).toBeDefined();
    expect((await scene.record(id)).thumbnail).toMatchObject({ key: `${key}.thumbnail.png` });
    expect(await asked(id, 'media')).toHaveLength(1);
  });

  test('a transcript is fetched for an asset that is no video by its type, if the library says that it has one', async () => {
    const mxf = { name: 'rushes.mxf', mimeType: 'application/mxf', assetType: 'selects' };
    const id = await scene.upload({ ...mxf, hasTranscript: true });
    await scene.admin.addFault({ endpoint: 'transcript', assetId: id, status: 200, body: { assetId: id, ...spoken } });
    await scene.resync();
    await transcriptIs(id, 'mirrored');
  });

  test('an asset that an operator requests during a follow-up check is compared with the bucket after it', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload(video);
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    await scene.mirror.quiet();
    const { key } = await scene.mirror.asset(id);
    await scene.admin.addFault({ endpoint: 'asset', assetId: id, latency: 5000, times: 1 });
    await scene.query(`UPDATE assets SET next_at = now() WHERE id = '${id}'`);
    await until('a follow-up check', async () => (await scene.mirror.api('GET', `/assets/${id}`)).working);
    await scene.storage.remove(key);
    await scene.resync({ mode: 'incremental', assetIds: [id] });
    await until('the file', async () => (await scene.storage.head(key)) !== undefined);
  });
});

test('a transcript that never comes is given up at its deadline', { tags: 'slow' }, async () => {
  const scene = await newScene({ environment: { TRANSCRIPT_GIVE_UP: '1s' } });
  try {
    const id = await scene.upload({ name: 'c.mp4', mimeType: 'video/mp4', assetType: 'videos', hasTranscript: true });
    await scene.resync();
    await until('giving up', async () => (await scene.mirror.asset(id))?.transcript === 'gave_up');
    expect(await scene.mirror.asset(id)).toMatchObject({
      state: 'mirrored',
      reason: { text: expect.stringMatching(/no transcript was available/) },
    });
    expect((await scene.record(id)).transcript).toEqual({ state: 'gave_up', keys: [] });
  } finally {
    await scene.close();
  }
});

test('MIRROR_THUMBNAILS=false and MIRROR_TRANSCRIPTS=false keep no thumbnails and transcripts', {
  tags: 'slow',
}, async () => {
  const scene = await newScene({ environment: { MIRROR_THUMBNAILS: 'false', MIRROR_TRANSCRIPTS: 'false' } });
  try {
    const id = await scene.upload({
      name: 'c.mp4',
      mimeType: 'video/mp4',
      assetType: 'videos',
      hasTranscript: true,
      transcript: spoken,
      thumbnail: true,
    });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toHaveLength(2);
    await scene.admin.clearRequests();
    await scene.resync();
    await scene.mirror.quiet();
    expect(await scene.admin.requests({ assetId: id })).toEqual([]);
  } finally {
    await scene.close();
  }
});
