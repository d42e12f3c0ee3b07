import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { startLibrary } from '../../src/library/index.ts';
import { newDatabase } from '../support/database.ts';
import { connect, type DetailedAsset, type Library, type ListedAsset, REDIRECT_URI } from '../support/library.ts';
import { until } from '../support/until.ts';

const LONG_AGO = new Date('2024-02-03T04:05:06Z');

let root: string;
let database: Awaited<ReturnType<typeof newDatabase>>;
let library: Library;
let headers: { authorization: string };
const log: object[] = [];

beforeAll(async () => {
  database = await newDatabase({ empty: true });
});
afterAll(() => database.drop());
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'library-folder-'));
});
afterEach(async () => {
  await library.close();
  rmSync(root, { recursive: true });
});

function put(path: string, content: string | Buffer = path, modified = LONG_AGO): void {
  const file = join(root, path);
  mkdirSync(join(file, '..'), { recursive: true });
  writeFileSync(file, content);
  utimesSync(file, modified, modified);
}

async function start(): Promise<void> {
  const started = await startLibrary({
    databaseUrl: database.url,
    clientId: 'app',
    clientSecret: 'svcs_secret',
    redirectUris: [REDIRECT_URI],
    autoConsent: true,
    content: { media: root },
    log: (line) => log.push(line),
  });
  library = started as Library;
  headers = { authorization: `Bearer ${(await connect(library)).access_token}` };
}

async function get<T>(path: string): Promise<T> {
  return (await (await fetch(`${library.apiUrl}/api/v1${path}`, { headers })).json()) as T;
}

async function listing(): Promise<Map<string, ListedAsset>> {
  const { companies } = await get<{ companies: { id: string }[] }>('/me');
  const found: ListedAsset[] = [];
  for (let cursor = ''; ; ) {
    const path = `/companies/${companies[0]!.id}/assets?limit=100${cursor && `&cursor=${cursor}`}`;
    const { assets, nextCursor } = await get<{ assets: ListedAsset[]; nextCursor: string | null }>(path);
    found.push(...assets);
    if (nextCursor === null) return new Map(found.map((asset) => [asset.name, asset]));
    cursor = nextCursor;
  }
}

async function download(asset: ListedAsset, range?: string): Promise<Response> {
  const { download } = (await get<{ asset: DetailedAsset }>(`/assets/${asset.id}`)).asset;
  return fetch(download.url, { headers: { referer: library.appUrl, ...(range && { range }) } });
}

describe('a folder with unusual files', () => {
  it('files with unusual names are served, each with its own bytes', async () => {
    const names = [
      'a b.txt',
      ' leading and trailing ',
      'quote".txt',
      "it's 100% #1?.txt",
      'back\\slash.txt',
      'new\nline.txt',
      'Ünïcödé 東京 🚀.txt',
      'U\u0308 decomposed.txt',
      '...dots',
      `${'long'.repeat(62)}.txt`,
      '-rf',
      'constructor',
      '__proto__',
    ].filter((name) => !name.startsWith('.'));
    for (const name of names) put(`deep/er/${name}`, `content of ${name}`);
    await start();
    const assets = await listing();
    expect([...assets.keys()].sort()).toEqual(names.sort());
    for (const name of names) {
      const answer = await download(assets.get(name)!);
      expect(answer.status, name).toBe(200);
      expect(await answer.text()).toBe(`content of ${name}`);
    }
  });

  it('links and names that are not UTF-8 are skipped, with one warning per name', async () => {
    writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([0x66, 0xff, 0xfe, 0x2e, 0x74])]), 'x');
    put('fine.txt');
    symlinkSync('/etc', join(root, 'folder'));
    symlinkSync('/etc/passwd', join(root, 'file.txt'));
    await start();
    expect([...(await listing()).keys()]).toEqual(['fine.txt']);
    expect(log.filter((line) => 'warning' in line && JSON.stringify(line).includes('UTF-8'))).toHaveLength(1);
  });

  it('a link that replaces a file is not followed', async () => {
    put('swapped.txt');
    await start();
    const asset = (await listing()).get('swapped.txt')!;
    rmSync(join(root, 'swapped.txt'));
    symlinkSync('/etc/passwd', join(root, 'swapped.txt'));
    const answer = await download(asset)
      .then((answer) => answer.text())
      .catch(() => 'interrupted');
    expect(answer).not.toContain('root:');
  });

  it('empty and large files are served', async () => {
    put('empty.bin', '');
    put('empty.mp4', '');
    put('huge.mov', 'beginning');
    truncateSync(join(root, 'huge.mov'), 200 * 2 ** 30);
    utimesSync(join(root, 'huge.mov'), LONG_AGO, LONG_AGO);
    await start();
    const assets = await listing();
    expect(assets.get('empty.bin')).toMatchObject({ size: 0, status: 'ready' });
    const empty = await download(assets.get('empty.bin')!);
    expect([empty.status, empty.headers.get('content-length'), await empty.text()]).toEqual([200, '0', '']);
    expect((await download(assets.get('empty.mp4')!, 'bytes=0-')).status).toBe(416);
    expect(assets.get('huge.mov')!.size).toBe(200 * 2 ** 30);
    const end = await download(assets.get('huge.mov')!, 'bytes=-3');
    expect([end.status, Buffer.from(await end.arrayBuffer())]).toEqual([206, Buffer.alloc(3)]);
  });

  it('upload dates of a folder are neither in the future nor negative', async () => {
    put('future.txt', 'x', new Date('2199-01-01'));
    put('ancient.txt', 'x', new Date('1950-01-01'));
    await start();
    const assets = await until('both to be listed', async () => {
      const assets = await listing();
      return assets.size === 2 && assets;
    });
    expect(assets.get('future.txt')!.uploadDate).toBeLessThanOrEqual(Date.now());
    expect(assets.get('ancient.txt')!.uploadDate).toBe(0);
  });

  it.skipIf(process.getuid?.() === 0)(
    'unreadable files are skipped, and assets of an unreadable folder stay',
    async () => {
      put('closed.txt');
      chmodSync(join(root, 'closed.txt'), 0);
      put('room/inside.txt');
      await start();
      expect([...(await listing()).keys()]).toEqual(['inside.txt']);
      chmodSync(join(root, 'room'), 0);
      await until('the folder to be complained about', () =>
        log.some((line) => JSON.stringify(line).includes('"room"')),
      );
      expect([...(await listing()).keys()]).toEqual(['inside.txt']);
      chmodSync(join(root, 'room'), 0o755);
    },
  );

  it('the download of a file that changes meanwhile never completes', { tags: 'slow' }, async () => {
    put('growing.bin', Buffer.alloc(64 * 2 ** 20, 'a'));
    await start();
    const answer = await download((await listing()).get('growing.bin')!);
    const reader = answer.body!.getReader();
    await reader.read();
    appendFileSync(join(root, 'growing.bin'), 'more');
    const rest = (async () => {
      for (let bytes = 0; ; ) {
        const { done, value } = await reader.read();
        if (done) return bytes;
        bytes += value.length;
      }
    })();
    await expect(rest).rejects.toThrow();
  });

  it('after a restart, files keep ids and dates, and new files are uploaded when they are found', async () => {
    put('Spring/old.txt');
    mkdirSync(join(root, 'Empty'));
    await start();
    put('late.txt', 'written long ago, copied just now', LONG_AGO);
    const before = await until('the late file to be listed', async () => {
      const assets = await listing();
      return assets.size === 2 && assets;
    });
    expect(before.get('old.txt')!.uploadDate).toBe(LONG_AGO.getTime());
    expect(before.get('late.txt')!.uploadDate).toBeGreaterThan(Date.now() - 60_000);
    const { companies } = await get<{ companies: { id: string }[] }>('/me');
    const { projects } = await get<{ projects: { name: string }[] }>(`/companies/${companies[0]!.id}/projects`);
    expect(projects.map(({ name }) => name)).toEqual(['Empty', 'Spring']);

    await library.close();
    const stopped = Date.now();
    put('while-away.txt');
    put('Spring/old.txt', 'replaced', new Date('2024-03-04'));
    await start();
    const after = await listing();
    const { thumbnailUrl: _, ...late } = before.get('late.txt')!;
    expect(after.get('late.txt')).toMatchObject(late);
    expect(after.get('old.txt')!.id).toBe(before.get('old.txt')!.id);
    expect(after.get('old.txt')!.uploadDate).toBeGreaterThanOrEqual(stopped);
    expect(after.get('while-away.txt')!.uploadDate).toBeGreaterThanOrEqual(stopped);
  });

  it('a folder with thousands of files starts quickly', { tags: 'slow' }, async () => {
    for (let i = 0; i < 5000; i++) put(`p${i % 50}/file ${i}.txt`);
    await start();
    expect((await listing()).size).toBe(5000);
  });
});
