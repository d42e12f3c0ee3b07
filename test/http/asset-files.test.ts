import { truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { newLine } from '../storage/line.ts';
import { newScene, type Scene } from '../support/scene.ts';

const text = 'Kapitel 1: Grüße';
const bytes = Buffer.byteLength(text);
const s3 = inject('s3');

const fetchFrom =
  (scene: () => Scene) =>
  (path: string, { headers = {}, method = 'GET' }: { headers?: Record<string, string>; method?: string } = {}) =>
    fetch(`${scene().ground.publicUrl}/api/assets/${path}`, {
      method,
      redirect: 'manual',
      headers: { authorization: 'Bearer the-token-of-the-operators', ...headers },
    });

/** A film with all sidecars, a text, and files that could run scripts in a browser. */
async function upload(scene: Scene) {
  const film = await scene.film();
  const note = await scene.upload({ name: 'Übersicht "1".txt', mimeType: 'Text/Plain; charset=x', content: { text } });
  const page = await scene.upload({ name: 'page.html', mimeType: 'text/html', content: { text: '<p>hello' } });
  const drawing = await scene.upload({ name: 'a.svg', mimeType: 'image/svg+xml', content: { text: '<svg/>' } });
  await scene.resync();
  for (const id of [film, note, page, drawing]) await scene.mirror.assetIn(id, 'mirrored');
  await scene.mirror.quiet();
  return { film, note, page, drawing };
}

describe('files of assets in a directory', () => {
  let scene: Scene;
  let ids: Awaited<ReturnType<typeof upload>>;
  const get = fetchFrom(() => scene);
  beforeAll(async () => {
    scene = await newScene();
    ids = await upload(scene);
  });
  afterAll(async () => scene?.close());

  test('a text is shown in the browser, without the rights of our own pages', async () => {
    const answer = await get(`${ids.note}/media`);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe(text);
    const headers = Object.fromEntries(answer.headers);
    expect(headers).toMatchObject({
      'content-type': 'text/plain; charset=utf-8',
      'content-length': String(bytes),
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'same-origin',
    });
    expect(headers['content-disposition']).toMatch(/^inline; .*filename\*=UTF-8''%C3%9Cbersicht/);
  });

  test('with ?download, the browser saves the file', async () => {
    const { headers } = await get(`${ids.note}/media?download=true`);
    expect(headers.get('content-disposition')).toMatch(/^attachment; /);
    expect(headers.get('content-type')).toBe('application/octet-stream');
  });

  test.each(['page', 'drawing'] as const)('active content is only saved: %s', async (name) => {
    const { headers } = await get(`${ids[name]}/media`);
    expect(headers.get('content-disposition')).toMatch(/^attachment; /);
    expect(headers.get('content-type')).toBe('application/octet-stream');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
  });

  test.each([
    ['bytes=0-6', 206, `bytes 0-6/${bytes}`, 'Kapitel'],
    ['bytes=8-', 206, `bytes 8-${bytes - 1}/${bytes}`, '1: Grüße'],
    ['bytes=-5', 206, `bytes ${bytes - 5}-${bytes - 1}/${bytes}`, 'üße'],
    ['bytes=5-9999', 206, `bytes 5-${bytes - 1}/${bytes}`, 'el 1: Grüße'],
    ['bytes=-9999', 206, `bytes 0-${bytes - 1}/${bytes}`, text],
    ['bytes=5-2', 200, null, text],
    ['bytes=0-1,4-5', 200, null, text],
    ['pages=1-2', 200, null, text],
    ['nonsense', 200, null, text],
  ])('the range %s is answered with %i', async (range, status, contentRange, body) => {
    const answer = await get(`${ids.note}/media`, { headers: { range } });
    expect([answer.status, answer.headers.get('content-range')]).toEqual([status, contentRange]);
    const received = Buffer.from(await answer.arrayBuffer());
    expect(received.toString()).toBe(range === 'bytes=-5' ? Buffer.from(text).subarray(-5).toString() : body);
  });

  test('a range after the end of the file is refused', async () => {
    const answer = await get(`${ids.note}/media`, { headers: { range: 'bytes=100-' } });
    expect([answer.status, answer.headers.get('content-range')]).toEqual([416, `bytes */${bytes}`]);
    expect(answer.headers.get('content-type')).toMatch(/problem\+json/);
    expect(await answer.json()).toMatchObject({ code: 'range_not_in_file' });
  });

  test('a range of another version of the file is answered with the whole file', async () => {
    const etag = (await get(`${ids.note}/media`)).headers.get('etag')!;
    const partOf = (version: string) =>
      get(`${ids.note}/media`, { headers: { range: 'bytes=0-0', 'if-range': version } });
    expect((await partOf(etag)).status).toBe(206);
    expect((await partOf('"other"')).status).toBe(200);
  });

  test('a browser that has the file gets no bytes', async () => {
    const etag = (await get(`${ids.note}/media`)).headers.get('etag')!;
    const again = await get(`${ids.note}/media`, { headers: { 'if-none-match': `"other", ${etag}` } });
    expect([again.status, await again.text()]).toEqual([304, '']);
  });

  test('HEAD has the headers of the file, and no bytes', async () => {
    const answer = await get(`${ids.note}/media`, { method: 'HEAD' });
    expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([
      200,
      String(bytes),
      '',
    ]);
    const part = await get(`${ids.note}/media`, { method: 'HEAD', headers: { range: 'bytes=0-1' } });
    expect([part.status, part.headers.get('content-length')]).toEqual([200, String(bytes)]);
  });

  test('a PDF has no sandbox, because the viewers of browsers do not work in one', async () => {
    const id = await scene.upload({ name: 'a.pdf', mimeType: 'application/pdf', content: { text: '%PDF-1.4' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const { headers } = await get(`${id}/media`);
    expect(headers.get('content-type')).toBe('application/pdf');
    expect(headers.get('content-security-policy')).toBeNull();
  });

  test('an empty file of an asset is sent', async () => {
    const id = await scene.upload({ name: 'empty.txt', mimeType: 'text/plain', content: { text: '' } });
    await scene.resync();
    await scene.mirror.assetIn(id, 'mirrored');
    const answer = await get(`${id}/media`);
    expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([200, '0', '']);
  });

  test('a file that is replaced while it is sent is no complete answer', async () => {
    const id = await scene.upload({ name: 'large.bin', content: { seed: 'large', size: 30_000_000 } });
    await scene.resync();
    const { key } = await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    const answer = await get(`${id}/media`);
    expect(answer.headers.get('content-length')).toBe('30000000');
    const path = join(fileURLToPath(scene.ground.environment.STORAGE_URL!), key);
    await truncate(path, 1000);
    await expect(answer.arrayBuffer()).rejects.toThrow();
  });

  test('a file that is being sent does not delay the end of the process', { tags: 'slow' }, async () => {
    const other = await newScene({ environment: { SHUTDOWN_GRACE: '60s' } });
    const id = await other.upload({ name: 'large.bin', content: { seed: 'large', size: 30_000_000 } });
    await other.resync();
    await other.mirror.assetIn(id, 'mirrored');
    const answer = await fetch(`${other.ground.publicUrl}/api/assets/${id}/media`, {
      headers: { authorization: 'Bearer the-token-of-the-operators' },
    });
    const reader = answer.body!.getReader();
    await reader.read();
    await other.close();
    expect(other.mirror.lines.map(({ event }) => event)).not.toContain('service.grace_exceeded');
    await reader.cancel().catch(() => {});
  });

  test('thumbnail, captions and record are there, and a missing one is explained', async () => {
    const types = async (id: string) =>
      Promise.all(
        ['thumbnail', 'captions', 'record'].map(async (kind) => {
          const answer = await get(`${id}/${kind}`);
          await answer.arrayBuffer();
          return answer.status === 200 ? answer.headers.get('content-type') : answer.status;
        }),
      );
    expect(await types(ids.film)).toEqual([
      expect.stringMatching(/^image\//),
      'text/vtt; charset=utf-8',
      'application/json',
    ]);
    expect(await types(ids.note)).toEqual([404, 404, 'application/json']);
    expect(await (await get(`${ids.note}/captions`)).json()).toMatchObject({
      code: 'file_not_in_bucket',
      detail: expect.stringContaining(`no captions of asset ${ids.note}`),
    });
    expect(await (await get('no-such/media')).json()).toMatchObject({ code: 'asset_not_found' });
  });

  test('a file that is missing in the bucket is no empty file', async () => {
    const id = await scene.upload({ name: 'lost.txt', mimeType: 'text/plain' });
    await scene.resync();
    const { key } = await scene.mirror.assetIn(id, 'mirrored');
    await scene.checked();
    await scene.storage.remove(key);
    expect((await get(`${id}/media`)).status).toBe(404);
  });

  test('files of assets are sent to operators only', async () => {
    for (const kind of ['media', 'thumbnail', 'captions', 'record']) {
      const answer = await fetch(`${scene.ground.publicUrl}/api/assets/${ids.film}/${kind}`);
      expect(answer.status).toBe(401);
    }
  });
});

describe.skipIf(!s3)('files of assets in a bucket', () => {
  const scenes: Scene[] = [];
  afterAll(async () => {
    for (const scene of scenes) await scene.close();
  });
  async function withFiles(environment: Record<string, string> = {}) {
    const scene = await newScene({ s3, environment });
    scenes.push(scene);
    return { scene, ids: await upload(scene), get: fetchFrom(() => scene) };
  }

  test('the store itself sends media and thumbnails, by links that end after five minutes', {
    tags: 'slow',
  }, async () => {
    const { scene, ids, get } = await withFiles();
    const answer = await get(`${ids.note}/media`);
    expect(answer.status).toBe(302);
    expect(answer.headers.get('cache-control')).toBe('private, max-age=60');
    expect(answer.headers.get('referrer-policy')).toBe('no-referrer');
    const link = new URL(answer.headers.get('location')!);
    expect(Number(link.searchParams.get('X-Amz-Expires'))).toBeLessThanOrEqual(300);
    const file = await fetch(link, { headers: { range: 'bytes=0-6' } });
    expect([file.status, await file.text()]).toEqual([206, 'Kapitel']);
    expect(file.headers.get('content-type')).toBe('text/plain; charset=utf-8');
    expect(file.headers.get('content-disposition')).toMatch(/^inline; /);

    const saved = await fetch((await get(`${ids.drawing}/media`)).headers.get('location')!);
    expect(saved.headers.get('content-type')).toBe('application/octet-stream');
    expect(saved.headers.get('content-disposition')).toMatch(/^attachment; /);
    const thumbnail = await fetch((await get(`${ids.film}/thumbnail`)).headers.get('location')!);
    expect(thumbnail.headers.get('content-type')).toMatch(/^image\//);
    expect((await get(`${ids.film}/captions`)).status).toBe(200);
    expect((await get(`${ids.film}/record`)).status).toBe(200);

    const lines = scene.ground.logs.flatMap((log) => log()).join('\n');
    expect(lines).not.toContain('X-Amz-Signature');
  });

  test('the dashboard may show files from where links lead, and from nowhere else', { tags: 'slow' }, async () => {
    const { scene } = await withFiles({ S3_PUBLIC_ENDPOINT: 'https://files.example.com' });
    const page = await fetch(scene.ground.publicUrl, {
      headers: { authorization: 'Bearer the-token-of-the-operators' },
    });
    const policy = page.headers.get('content-security-policy');
    expect(policy).toMatch(
      /img-src 'self' https:\/\/\S*files\.example\.com; media-src 'self' https:\/\/\S*files\.example\.com;/,
    );
  });

  test('HEAD is answered by the service: a link is valid for GET only', { tags: 'slow' }, async () => {
    const { ids, get } = await withFiles();
    const answer = await get(`${ids.note}/media`, { method: 'HEAD' });
    expect([answer.status, answer.headers.get('content-length')]).toEqual([200, String(bytes)]);
  });

  test('while the bucket does not answer, the dashboard opens, and files say so in time', {
    tags: 'slow',
  }, async () => {
    const line = await newLine(s3!.endpoint);
    const scene = await newScene({ s3, through: async () => ({ S3_ENDPOINT: line.endpoint }) });
    scenes.push(scene);
    const { note } = await upload(scene);
    line.set({ request: () => undefined });
    const headers = { authorization: 'Bearer the-token-of-the-operators' };
    const began = performance.now();
    for (const path of ['/', '/dashboard/app.js']) {
      expect((await fetch(`${scene.ground.publicUrl}${path}`, { headers })).status).toBe(200);
    }
    // Before the bucket's time to answer is over.
    expect(performance.now() - began).toBeLessThan(10_000);
    const asked = performance.now();
    const answer = await fetchFrom(() => scene)(`${note}/record`);
    expect(await answer.json()).toMatchObject({ status: 503, code: 'bucket_unavailable' });
    expect(performance.now() - asked).toBeLessThan(30_000);
    line.set({});
    await line.close();
  });

  test('with S3_PUBLIC_ENDPOINT=none, the service sends the files of the bucket', { tags: 'slow' }, async () => {
    const { scene, ids, get } = await withFiles({ S3_PUBLIC_ENDPOINT: 'none' });
    const part = await get(`${ids.note}/media`, { headers: { range: 'bytes=8-8' } });
    expect([part.status, await part.text()]).toEqual([206, '1']);
    expect((await get(`${ids.film}/thumbnail`)).headers.get('content-type')).toMatch(/^image\//);
    const page = await fetch(scene.ground.publicUrl, {
      headers: { authorization: 'Bearer the-token-of-the-operators' },
    });
    expect(page.headers.get('content-security-policy')).toContain("img-src 'self';");
  });
});
