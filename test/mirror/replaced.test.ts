// @module-tag slow
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { bytesOf } from '../../src/library/index.ts';
import { contentOf } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const film = { mimeType: 'video/mp4', assetType: 'videos', thumbnail: true };
const spoken = (text: string) => ({
  language: 'de',
  durationSec: 3,
  text,
  vtt: `WEBVTT\n\n00:00.000 --> 00:03.000\n${text}\n`,
  words: null,
});
const size = 300_000;

describe('a file that is replaced in the library', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({ environment: { TRANSFER_STALL_TIMEOUT: '1s' } });
  });
  afterEach(async () => {
    await scene.admin.clearFaults();
  });
  afterAll(async () => {
    await scene?.close();
  });
  const keyOf = (id: string, name: string) => `acme/_/${id}/${name}`;
  const textOf = async (key: string) => (await contentOf(scene.storage, key))?.toString();
  const requestsFor = (assetId: string, endpoint: string) =>
    scene.admin.requests({ assetId, endpoint: endpoint as never });
  const row = async (id: string) => (await scene.mirror.store.assets.get(id))!;

  /** A film with all sidecars. */
  async function uploadFilm(filename: string): Promise<string> {
    const id = await scene.upload({
      ...film,
      name: filename,
      filename,
      content: { text: 'first' },
      hasTranscript: true,
      transcript: spoken('eins'),
    });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toEqual(everything(id, filename));
    return id;
  }
  const everything = (id: string, filename: string) =>
    ['', '.asset.json', '.thumbnail.png', '.transcript.json', '.txt', '.vtt'].map((end) => keyOf(id, filename + end));

  /** Replaces it, and waits until its bytes begin to arrive, very slowly. */
  async function replaceSlowly(id: string, change: object = {}): Promise<void> {
    await scene.admin.addFault({ endpoint: 'media', assetId: id, stallAfter: 100_000, ignoreRange: true });
    await scene.admin.clearRequests();
    await scene.admin.changeAsset(id, { content: { seed: id, size }, ...change });
    await scene.resync();
    await until('the new bytes to come', async () => (await requestsFor(id, 'media')).length > 0);
    await until('the old record to be gone', async () => !(await scene.storage.head(keyOf(id, 'old.mp4.asset.json'))));
  }

  test('a replaced file has no record during its transfer, and its old bytes until the new ones are complete', async () => {
    const id = await uploadFilm('old.mp4');
    await replaceSlowly(id);
    expect(await textOf(keyOf(id, 'old.mp4'))).toBe('first');
    expect(await row(id)).toMatchObject({ recordKey: null, media: { key: keyOf(id, 'old.mp4') } });
    await scene.admin.clearFaults();
    await until('the new record', async () => (await scene.record(id))?.media.bytes === size);
    expect(await contentOf(scene.storage, keyOf(id, 'old.mp4'))).toEqual(bytesOf(id, 0, size));
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toEqual(everything(id, 'old.mp4'));
  });

  test('a new file whose name differs only in case takes the key of the old one', async () => {
    const id = await uploadFilm('old.mp4');
    await scene.admin.changeAsset(id, { content: { seed: id, size }, name: 'OLD.mp4', filename: 'OLD.mp4' });
    await scene.resync();
    await until('the new record', async () => (await scene.record(id))?.media.bytes === size);
    await scene.mirror.quiet();
    expect(await contentOf(scene.storage, keyOf(id, 'old.mp4'))).toEqual(bytesOf(id, 0, size));
    expect(await scene.keys(id)).toEqual(everything(id, 'old.mp4'));
  });

  test('a new file under another name leaves no object of the old one', async () => {
    const id = await uploadFilm('old.mp4');
    await scene.admin.changeAsset(id, {
      content: { text: 'second one' },
      filename: 'new.mp4',
      transcript: spoken('zwei'),
    });
    await scene.resync();
    await until('the new record', async () => (await scene.record(id))?.media.key === keyOf(id, 'new.mp4'));
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toEqual(everything(id, 'new.mp4'));
    expect(await textOf(keyOf(id, 'new.mp4.txt'))).toBe('zwei');
    expect(await row(id)).toMatchObject({ superseded: [], recordKey: keyOf(id, 'new.mp4.asset.json') });
  });

  test('a new file may have the name of the old record, or of its captions', async () => {
    const id = await uploadFilm('old.mp4');
    for (const filename of ['old.mp4.asset.json', 'old.mp4.asset.json.vtt']) {
      await scene.admin.changeAsset(id, { content: { text: filename }, filename });
      await scene.resync();
      await until('the new record', async () => (await row(id)).recordKey === keyOf(id, `${filename}.asset.json`));
      await scene.mirror.quiet();
      expect(await scene.keys(id)).toEqual(everything(id, filename));
      expect(await textOf(keyOf(id, filename))).toBe(filename);
    }
  });

  test('a new file that cannot be fetched leaves the old bytes in place, without a record', async () => {
    const id = await uploadFilm('old.mp4');
    await scene.admin.addFault({ endpoint: 'media', assetId: id, shortBy: 1, chunked: true });
    await scene.admin.changeAsset(id, { content: { text: 'cannot be had' }, filename: 'new.mp4' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'failed');
    expect(await textOf(keyOf(id, 'old.mp4'))).toBe('first');
    expect(await scene.keys(id)).not.toContain(keyOf(id, 'old.mp4.asset.json'));
    await scene.admin.clearFaults();
    await scene.resync();
    await until('the new record', async () => (await scene.record(id))?.media.key === keyOf(id, 'new.mp4'));
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toEqual(everything(id, 'new.mp4'));
  });

  test('a file that is changed back before the new one was fetched is fetched again', async () => {
    const id = await uploadFilm('old.mp4');
    await replaceSlowly(id);
    await scene.admin.changeAsset(id, { content: { text: 'first' } });
    await scene.admin.clearFaults();
    await until('the record', async () => (await scene.record(id))?.media.bytes === 5);
    await scene.mirror.quiet();
    expect((await requestsFor(id, 'media')).length).toBeGreaterThan(1);
    expect(await scene.keys(id)).toEqual(everything(id, 'old.mp4'));
  });

  test('a process that stops during the transfer of a new file leaves one complete file in the end', async () => {
    const id = await uploadFilm('old.mp4');
    await replaceSlowly(id, { filename: 'new.mp4' });
    await scene.restart({ SHUTDOWN_GRACE: '2s' });
    await scene.admin.clearFaults();
    await until('the new record', async () => (await scene.record(id))?.media.bytes === size);
    await scene.mirror.quiet();
    expect(await scene.keys(id)).toEqual(everything(id, 'new.mp4'));
  });

  test('a process that stops before the record of a new file is written does not fetch it again', async () => {
    const id = await uploadFilm('old.mp4');
    await scene.admin.addFault({ endpoint: 'thumbnail', assetId: id, latency: 60_000 });
    await scene.admin.clearRequests();
    await scene.admin.changeAsset(id, { content: { text: 'second one' }, filename: 'new.mp4' });
    await scene.resync();
    await until('the new bytes', async () => (await row(id)).media?.key === keyOf(id, 'new.mp4'));
    expect(await scene.keys(id)).toContain(keyOf(id, 'old.mp4'));
    // After a pause of the machine, it may have requested the rest of them.
    const { length: requests } = await requestsFor(id, 'media');
    await scene.restart({ SHUTDOWN_GRACE: '2s' });
    await scene.admin.clearFaults();
    await until('the new record', async () => (await scene.record(id))?.media.key === keyOf(id, 'new.mp4'));
    await scene.mirror.quiet();
    expect(await requestsFor(id, 'media')).toHaveLength(requests);
    expect(await scene.keys(id)).toEqual(everything(id, 'new.mp4'));
  });

  test('a new name alone fetches nothing: the file keeps its key, and the record has the new name', async () => {
    const id = await uploadFilm('old.mp4');
    await scene.admin.clearRequests();
    await scene.admin.changeAsset(id, { name: 'A new name', filename: 'new.mp4' });
    await scene.resync();
    await until('the new record', async () => (await scene.record(id))?.asset.name === 'A new name');
    await scene.mirror.quiet();
    expect(await requestsFor(id, 'media')).toEqual([]);
    expect(await scene.keys(id)).toEqual(everything(id, 'old.mp4'));
  });

  test('an asset with the id of a gone asset of another company leaves the old file in place', async () => {
    const id = await uploadFilm('kept.mp4');
    await scene.admin.removeAsset(id);
    await scene.resync();
    await scene.mirror.assetIn(id, 'gone');
    await scene.admin.addCompany({ id: 'other', name: 'Other', userIds: [scene.library.users[0]!.id] });
    const asset = {
      ...film,
      id,
      companyId: 'other',
      name: 'new.mp4',
      filename: 'new.mp4',
      content: { text: 'second' },
    };
    await scene.admin.addAsset({ ...asset, uploadDate: Date.UTC(2024, 4, 1) });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    await scene.mirror.quiet();
    expect(await textOf(`other/_/${id}/new.mp4`)).toBe('second');
    expect(await scene.keys(id)).toEqual(expect.arrayContaining(everything(id, 'kept.mp4')));
    expect(await textOf(keyOf(id, 'kept.mp4'))).toBe('first');
    expect((await row(id)).transcriptState).not.toBe('mirrored');
    const events = await scene.mirror.store.events.search({ kind: 'asset.conflict', assetId: id, limit: 9 });
    expect(events).toMatchObject([{ assetId: id, data: { companyId: 'other', recordedFor: 'acme' } }]);
  });

  test('an asset that lost its company and its files is mirrored from the company that lists it next', async () => {
    const userId = scene.library.users[0]!.id;
    await scene.admin.addCompany({ id: 'closing', name: 'Closing', userIds: [userId] });
    const id = await scene.upload({ companyId: 'closing' });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const { uploadDate } = await scene.mirror.asset(id);
    await scene.admin.setAccess('closing', userId, false);
    await scene.admin.removeAsset(id);
    await scene.resync({ mode: 'incremental' });
    await scene.checked();
    for (const key of await scene.keys(id)) await scene.storage.remove(key);
    await scene.mirror.api('POST', '/verify', { repair: true });
    const lost = await scene.mirror.assetIn(id, 'pending');
    expect(lost).toMatchObject({ companyId: 'closing', reason: { code: 'no_reader' } });
    await scene.checked();
    const { id: run } = await scene.mirror.api('POST', '/verify', {});
    await scene.checked();
    const { lines } = await scene.mirror.api('GET', `/verify/${run}?limit=1000`);
    const why = lines.find((line: { assetId: string }) => line.assetId === id).text;
    expect(why).toContain('no connection can read its company');

    await scene.upload({ id, uploadDate: Date.parse(uploadDate) });
    await scene.resync();
    expect(await scene.mirror.assetIn(id, 'mirrored')).toMatchObject({ companyId: 'acme' });
    expect((await scene.media(id))?.toString()).toBe('hello');
  });
});
