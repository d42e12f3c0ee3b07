import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { bytesOf } from '../../src/library/index.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';

describe('a file that is incomplete or not a file', () => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await newScene({ environment: { CONNECTION_CONCURRENCY: '8', TRANSFER_STALL_TIMEOUT: '5s' } });
  });
  afterAll(async () => {
    await scene?.close();
  });

  test.concurrent('a file of the wrong size fails, and is mirrored when the library corrects the size', {
    tags: 'slow',
  }, async () => {
    const id = await scene.upload({ content: { text: 'twelve bytes' }, override: { size: 13 } });
    await scene.resync();
    expect((await scene.mirror.assetIn(id, 'failed')).reason.text).toMatch(/says 13 bytes, the download has 12/);
    await scene.admin.changeAsset(id, { override: { size: 12 } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect((await scene.media(id))?.toString()).toBe('twelve bytes');
  });

  test.concurrent('an error page in place of an MP4 of unknown length is not mirrored', { tags: 'slow' }, async () => {
    const id = await scene.upload({
      name: 'film.mov',
      mimeType: 'video/quicktime',
      assetType: 'videos',
      originalGone: true,
      mp4: { text: '<h1>Forbidden</h1>' },
    });
    await scene.admin.addFault({ endpoint: 'mp4', assetId: id, wrongType: true });
    await scene.resync();
    expect((await scene.mirror.assetIn(id, 'failed')).reason.text).toMatch(/text\/html, not the file/);
    expect(await scene.keys(id)).toEqual([]);
  });

  test.concurrent('an empty MP4, or plain text in its place, is not mirrored', { tags: 'slow' }, async () => {
    const film = { name: 'film.mov', mimeType: 'video/quicktime', assetType: 'videos', originalGone: true };
    const empty = await scene.upload({ ...film, mp4: { text: '' } });
    const words = await scene.upload({ ...film, mp4: { text: 'link expired' } });
    await scene.admin.addFault({ endpoint: 'mp4', assetId: words, headers: { 'content-type': 'text/plain' } });
    await scene.resync();
    expect((await scene.mirror.assetIn(empty, 'failed')).reason.text).toMatch(/empty/);
    expect(await scene.keys(empty)).toEqual([]);
  });

  test.concurrent('an empty answer without a length is not mirrored as a file of unknown size', {
    tags: 'slow',
  }, async () => {
    const film = { name: 'film.mov', mimeType: 'video/quicktime', assetType: 'videos' };
    const rendition = await scene.upload({ ...film, originalGone: true, mp4: { text: '' } });
    const original = await scene.upload({ ...film, content: { text: '' }, override: { size: null } });
    const empty = { chunked: true, headers: { 'content-type': 'video/mp4' } };
    await scene.admin.addFault({ endpoint: 'mp4', assetId: rendition, ...empty });
    await scene.admin.addFault({ endpoint: 'media', assetId: original, ...empty });
    await scene.resync();
    for (const id of [rendition, original]) {
      expect((await scene.mirror.assetIn(id, 'failed')).reason).toMatchObject({ code: 'empty' });
      expect(await scene.keys(id)).toEqual([]);
    }
  });

  const page = '<!DOCTYPE html><title>Sorry</title>';
  const ofUnknownType = { headers: { 'content-type': 'application/octet-stream' } };

  test.concurrent('text of an unknown type in place of an MP4 is not mirrored', { tags: 'slow' }, async () => {
    const film = { name: 'film.mov', mimeType: 'video/quicktime', assetType: 'videos', originalGone: true };
    const reasons = new Map<string, RegExp>();
    for (const [text, reason] of [
      [page, /error page/],
      ['{"error": "expired"}', /error page/],
      ['Link expired', /not an MP4/],
    ] as const) {
      const id = await scene.upload({ ...film, mp4: { text } });
      await scene.admin.addFault({ endpoint: 'mp4', assetId: id, ...ofUnknownType });
      reasons.set(id, reason);
    }
    await scene.resync();
    for (const [id, reason] of reasons) {
      expect((await scene.mirror.assetIn(id, 'failed')).reason.text).toMatch(reason);
      expect(await scene.keys(id)).toEqual([]);
    }
  });

  test.concurrent('an MP4 of an unknown type is mirrored if it begins as one', { tags: 'slow' }, async () => {
    const film = { name: 'film.mov', mimeType: 'video/quicktime', assetType: 'videos', originalGone: true };
    const content = Buffer.concat([Buffer.from('\0\0\0\x20ftypisom'), bytesOf('film', 0, 300_000)]);
    const id = await scene.upload({ ...film, mp4: { base64: content.toString('base64') } });
    await scene.admin.addFault({ endpoint: 'mp4', assetId: id, ...ofUnknownType });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await scene.media(id)).toEqual(content);
  });

  test.concurrent('a page in place of a file of unknown size is mirrored only if the asset is called a page', {
    tags: 'slow',
  }, async () => {
    const sizeless = { content: { text: page }, override: { size: null } };
    const file = await scene.upload(sizeless);
    const document = await scene.upload({ ...sizeless, name: 'index.html', mimeType: 'text/html' });
    const called = await scene.upload({ ...sizeless, name: 'page.html' });
    for (const assetId of [file, document, called]) {
      await scene.admin.addFault({ endpoint: 'media', assetId, ...ofUnknownType });
    }
    await scene.resync();
    expect((await scene.mirror.assetIn(file, 'failed')).reason.text).toMatch(/error page/);
    expect(await scene.keys(file)).toEqual([]);
    for (const id of [document, called]) {
      await scene.mirror.assetIn(id, 'mirrored');
      expect((await scene.media(id))?.toString()).toBe(page);
    }
  });

  test.concurrent('a page of exactly the declared length is not mirrored as a picture, but a film that the server calls a page is', {
    tags: 'slow',
  }, async () => {
    const html = { headers: { 'content-type': 'text/html; charset=utf-8' } };
    const picture = await scene.upload({ content: { text: page }, name: 'picture.jpg', mimeType: 'image/jpeg' });
    const size = 40 * 2 ** 20;
    const film = await scene.upload({ content: { seed: 'film', size }, name: 'film.mov', mimeType: 'video/quicktime' });
    const drawing = await scene.upload({ content: { text: page }, name: 'logo.svg', mimeType: 'image/svg+xml' });
    const document = await scene.upload({ content: { text: page }, name: 'page.html', mimeType: 'text/html' });
    for (const assetId of [picture, drawing, film, document]) {
      await scene.admin.addFault({ endpoint: 'media', assetId, ...html });
    }
    await scene.resync();
    for (const id of [picture, drawing]) {
      expect((await scene.mirror.assetIn(id, 'failed')).reason.text).toMatch(/an error page, not the file/);
      expect(await scene.keys(id)).toEqual([]);
    }
    await scene.mirror.assetIn(document, 'mirrored');
    expect((await scene.media(document))?.toString()).toBe(page);
    // The server calls all files pages.
    await scene.mirror.assetIn(film, 'mirrored');
    expect(await scene.media(film)).toEqual(bytesOf('film', 0, size));
  });

  // It ends all faults, so it does not run beside the others.
  test('a page in place of a thumbnail is not mirrored as one', { tags: 'slow' }, async () => {
    const id = await scene.upload({ thumbnail: true });
    await scene.admin.addFault({ endpoint: 'thumbnail', assetId: id, status: 200, body: page, ...ofUnknownType });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    expect(await scene.keys(id)).toEqual([`acme/_/${id}/file.bin`, `acme/_/${id}/file.bin.asset.json`]);
    await scene.admin.clearFaults();
    await until('the thumbnail', async () => (await scene.mirror.asset(id))?.thumbnail === 'mirrored');
    expect(await scene.keys(id)).toContain(`acme/_/${id}/file.bin.thumbnail.png`);
  });

  const broken = [
    { what: 'that is shorter than the library says', fault: { shortBy: 100 }, reason: /wrong size.*50000.*49900/ },
    { what: 'that is longer than the library says', fault: { longBy: 100 }, reason: /wrong size.*50000.*50100/ },
    {
      what: 'that is shorter, without a length',
      fault: { shortBy: 100, chunked: true },
      reason: /ended at byte 49900 of 50000/,
    },
    {
      what: 'that is longer, without a length',
      fault: { longBy: 100, chunked: true },
      reason: /continues after its 50000 bytes/,
    },
    { what: 'that is always interrupted', fault: { cutAfter: 10_000, ignoreRange: true }, reason: /was interrupted/ },
    {
      what: 'that stalls',
      fault: { stallAfter: 10_000, ignoreRange: true },
      reason: /no byte came for 5 s|cannot resume/,
    },
    { what: 'that comes compressed', fault: { contentEncoding: 'gzip' }, reason: /encoded/ },
    { what: 'whose links are all refused', fault: { status: 403 }, reason: /403/ },
  ];
  test.concurrent.each(broken)(
    'a file $what is never recorded, is retried, and fails with the reason',
    { tags: 'slow' },
    async ({ fault, reason }) => {
      const id = await scene.upload({ content: { seed: 'broken', size: 50_000 } });
      await scene.admin.addFault({ endpoint: 'media', assetId: id, ...fault });
      await scene.resync();
      const asset = await scene.mirror.assetIn(id, 'failed');
      expect(asset.reason.text).toMatch(reason);
      expect(asset).toMatchObject({ attempts: 5, key: null, mirroredAt: null });
      expect(await scene.keys(id)).toEqual([]);
    },
  );
});
