// @module-tag slow
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { defaultTimings } from '../src/floor/timings.ts';
import { bytesOf } from '../src/library/index.ts';
import { type Admin, type Library, startTestLibrary, type Upload } from './support/library.ts';
import { contentOf, type Ground, grounds, keysOf, newGround, spawnMirror } from './support/mirror.ts';
import { freePort } from './support/ports.ts';

const transcript = {
  language: 'en',
  durationSec: 2.5,
  text: 'Hello world',
  vtt: 'WEBVTT\n\n00:00.000 --> 00:02.500\nHello world\n',
  words: [{ word: 'Hello', start: 0, end: 1 }],
};

interface Wanted {
  upload: Omit<Upload, 'companyId'>;
  bytes: Buffer;
  filename: string;
  variant?: 'mp4';
  beside?: string[];
}

/** One asset of every kind, and of every problem that the spec allows a correct library. */
const wanted: Wanted[] = [
  plain('videos', 'video/mp4', 'Sommerfest – Schnitt 3.mp4', 3_000_000, { mp4: { seed: 'a rendition', size: 70_000 } }),
  { ...plain('selects', 'video/quicktime', 'take 7.mov', 500_000), ...renditionOnly('take 7.mp4') },
  plain('social', 'video/webm', '🎬 teaser.webm', 200_000, { hasTranscript: true, transcript }, [
    '.vtt',
    '.txt',
    '.transcript.json',
  ]),
  plain('photography', 'image/jpeg', '東京 夜.jpg', 120_000, { thumbnail: true }, ['.thumbnail.png']),
  plain('graphics', 'image/svg+xml', '../../etc/passwd', 900, {}, [], '.._.._etc_passwd'),
  plain('audio', 'audio/wav', 'interview.wav', 400_000, { hasTranscript: true, transcript: { noSpeech: true } }),
  plain(
    'documents',
    'application/pdf',
    `${'long '.repeat(80)}.pdf`,
    5_000,
    {},
    [],
    `${'long '.repeat(80).slice(0, 196)}.pdf`,
  ),
  plain('brand assets', 'application/zip', 'Marke\u0000\n\u202e.zip', 10_000, {}, [], 'Marke\u202e.zip'),
  plain('documents', 'application/octet-stream', 'empty', 0),
  plain('documents', 'text/html', 'page.html', 700),
];

function plain(
  assetType: string,
  mimeType: string,
  name: string,
  size: number,
  more: Partial<Upload> = {},
  beside: string[] = [],
  filename = name.normalize('NFC'),
): Wanted {
  const seed = `${assetType} ${size}`;
  return {
    upload: { assetType, mimeType, name, thumbnail: false, content: { seed, size }, ...more },
    bytes: bytesOf(seed, 0, size),
    filename,
    beside,
  };
}

function renditionOnly(filename: string) {
  const mp4 = { seed: 'rendition of a lost original', size: 90_000 };
  return {
    upload: {
      assetType: 'selects',
      mimeType: 'video/quicktime',
      name: 'take 7.mov',
      thumbnail: false,
      content: { seed: 'lost', size: 500_000 },
      originalGone: true,
      mp4,
    },
    bytes: bytesOf(mp4.seed, 0, mp4.size),
    filename,
    variant: 'mp4' as const,
  };
}

describe.each(grounds())('from a library to the bucket ($name)', (kind) => {
  let library: Library;
  let admin: Admin;
  let ground: Ground;
  const ids: string[] = [];

  beforeAll(async () => {
    const port = await freePort();
    // With a short lease, a pause of a worker would make another one fetch its files, too.
    ground = await newGround({ port, redis: kind.redis, s3: kind.s3, timings: defaultTimings });
    ({ library, admin } = await startTestLibrary({ redirectUris: [`http://127.0.0.1:${port}/oauth/callback`] }));
    const [user] = library.users;
    await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [user!.id] });
    await admin.addProject({ id: 'spring', companyId: 'acme', name: 'Spring' });
    for (const [index, { upload }] of wanted.entries()) {
      // Long ago, so that the mirror does not wait for transcripts that are not announced.
      const uploadDate = Date.UTC(2024, 1, 29) + index;
      const asset = await admin.addAsset({
        companyId: 'acme',
        uploadDate,
        ...(index % 2 && { projectId: 'spring' }),
        ...upload,
      });
      ids.push(asset.id);
    }
  });
  afterAll(async () => {
    await library?.close();
    await ground?.clear();
  });

  test('web and worker processes mirror a whole library, from the connect link to the last byte', async () => {
    const web = await spawnMirror(ground, library, 'web');
    const workers = [await spawnMirror(ground, library, 'worker'), await spawnMirror(ground, library, 'worker')];
    try {
      await web.connect();
      await web.quiet();

      const keys = await keysOf(ground.storage);
      for (const [index, want] of wanted.entries()) {
        const id = ids[index]!;
        const key = `acme/${index % 2 ? 'spring' : '_'}/${id}/${want.filename}`;
        const content = await contentOf(ground.storage, key);
        expect(content && sha(content), key).toBe(sha(want.bytes));
        const record = JSON.parse((await contentOf(ground.storage, `${key}.asset.json`))!.toString());
        expect(record).toMatchObject({
          version: 1,
          asset: { id, name: want.upload.name, assetType: want.upload.assetType },
          media: { key, bytes: want.bytes.length, variant: want.variant ?? 'original' },
        });
        const own = keys.filter((k) => k.includes(`/${id}/`)).sort();
        const beside = ['', '.asset.json', ...(want.beside ?? [])].map((suffix) => key + suffix).sort();
        expect(own).toEqual(beside);
      }
      expect(keys.filter((key) => !ids.some((id) => key.includes(`/${id}/`)))).toEqual([]);

      const everything = (
        await Promise.all(keys.filter((k) => /\.(json|vtt|txt)$/.test(k)).map((k) => contentOf(ground.storage, k)))
      ).join();
      expect(everything).not.toMatch(/svc[a-z]_|[?&](sig|signature|expires|token)=/i);

      const asked = await admin.requests();
      const downloads = asked.filter(({ endpoint }) => ['media', 'mp4', 'thumbnail'].includes(String(endpoint)));
      expect(downloads.length).toBeGreaterThan(wanted.length);
      for (const request of downloads)
        expect(request).toMatchObject({ referer: library.appUrl, hasAuthorization: false });
      // Without errors, each file is fetched only once.
      expect(downloads.filter(({ endpoint, status }) => endpoint !== 'thumbnail' && status === 200)).toHaveLength(
        wanted.length,
      );
      expect((await admin.connections()).map(({ refreshTokens }) => refreshTokens)).toEqual([1]);

      for (const mirror of [web, ...workers]) {
        expect(mirror.output()).not.toMatch(/svc[acrs]_[A-Za-z0-9]/);
        expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
      }
    } finally {
      for (const mirror of [web, ...workers]) mirror.child.kill('SIGKILL');
    }
  });

  test('a later start fetches only new assets', async () => {
    await admin.clearRequests();
    const mirror = await spawnMirror(ground, library, 'all');
    try {
      const added = await admin.addAsset({
        companyId: 'acme',
        name: 'new.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        content: { seed: 'new', size: 1000 },
      });
      const { connections } = await mirror.api('GET', '/connections');
      await mirror.api('POST', `/connections/${connections[0].id}/resync`, { mode: 'incremental' });
      await mirror.assetIn(added.id, 'mirrored');
      await mirror.api('POST', `/connections/${connections[0].id}/resync`, { mode: 'full' });
      await mirror.quiet();
      // The full sync asks for the original of the rendition, which is still missing.
      const downloads = (await admin.requests()).filter(
        ({ endpoint, status }) => ['media', 'mp4'].includes(String(endpoint)) && status !== 404,
      );
      expect(downloads.map(({ assetId }) => assetId)).toEqual([added.id]);
      expect(await mirror.kill('SIGTERM'), mirror.output()).toBe(0);
    } finally {
      mirror.child.kill('SIGKILL');
    }
  });
});

const sha = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
