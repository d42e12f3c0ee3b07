import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import yauzl from 'yauzl';
import { readCopyConfig } from '../../../src/config/config.ts';
import { type ExportRequest, exportList, exportTo } from '../../../src/offline/export.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const s3 = inject('s3');

describe.each([{ name: 'a directory', s3: undefined }, ...(s3 ? [{ name: `a bucket of ${s3.name}`, s3 }] : [])])(
  'an export from $name',
  ({ s3 }) => {
    let stage: Stage;
    let worker: ReturnType<typeof workerOf>;
    let home: string;
    let companyId: string;
    /** The bytes of each file, by the name that it should get. */
    const contents = new Map<string, string>();
    const ids: string[] = [];
    beforeAll(async () => {
      stage = await newStage({ s3 });
      worker = workerOf(stage);
      const at = await stage.company();
      companyId = at.companyId;
      home = await mkdtemp(join(tmpdir(), 'asset-mirror-export-'));
      const transcript = { language: 'en', durationSec: 3, text: 'hello', vtt: 'WEBVTT\n\nhello\n', words: null };
      for (const [name, tags, text] of [
        ['Beach', ['red'], 'one'],
        ['beach', ['red', 'blue'], 'two, longer'],
        ['Zoo, "north"', ['blue'], ''],
      ] as const) {
        const [id] = await stage.upload(companyId, 1, {
          ...{ name, tags: [...tags], filename: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos' },
          ...{ hasTranscript: true, transcript, content: { text } },
        });
        ids.push(id!);
      }
      await stage.sync(at.connectionId, 'full');
      for (const id of ids) await worker.complete(id);
      const folder = `The company ${companyId}/No project`;
      const sorted = (await stage.assets(companyId)).filter(({ name }) => /^beach$/i.test(name!));
      for (const [index, asset] of sorted.toSorted((a, b) => (a.id < b.id ? -1 : 1)).entries()) {
        const text = asset.name === 'Beach' ? 'one' : 'two, longer';
        contents.set(`${folder}/${asset.name}${index === 0 ? '' : ` (${asset.id})`}.mp4`, text);
      }
      contents.set(`${folder}/Zoo, "north".mp4`, '');
    });
    afterAll(async () => {
      await worker?.close();
      await stage?.close();
      await rm(home, { recursive: true, force: true });
    });

    let places = 0;
    const newPlace = () => join(home, String(++places));
    /** Database and bucket, and nothing of a library. */
    const config = () =>
      readCopyConfig(
        Object.fromEntries(
          Object.entries(stage.ground.environment).filter(([name]) =>
            /^(DATABASE_URL|STORAGE_URL|S3_|AWS_)/.test(name),
          ),
        ),
      );
    const usual = { names: '{company}/{project}/{name}', sidecars: false };
    async function exported(request: Partial<ExportRequest> & Pick<ExportRequest, 'to'>) {
      const problems: string[] = [];
      const report = { start() {}, problem: (line: string) => problems.push(line), progress() {} };
      const { log } = stage.mirror.service.context;
      const stop = new AbortController().signal;
      const all = { ...usual, filter: { companyId }, overwrite: false, ...request };
      return { ...(await exportTo(config(), all, { log, stop, report })), problems };
    }
    async function filesAt(path: string): Promise<Map<string, string>> {
      const names = await readdir(path, { recursive: true, withFileTypes: true });
      const files = names.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name));
      return new Map(
        await Promise.all(
          files.map(async (file) => [file.slice(path.length + 1), await readFile(file, 'utf8')] as const),
        ),
      );
    }
    const sorted = (files: Map<string, string>) => [...files].sort();

    test('exported files get readable names, and a manifest lists them', async () => {
      const path = newPlace();
      expect(await exported({ to: { kind: 'directory', path } })).toMatchObject({
        ...{ copied: 3, present: 0, failed: 0, problems: [] },
        total: { assets: 3, bytes: 14 },
      });
      const files = await filesAt(path);
      const manifest = files.get('manifest.csv')!;
      files.delete('manifest.csv');
      expect(sorted(files)).toEqual(sorted(contents));
      const [head, ...lines] = manifest.trim().split('\r\n');
      expect(head).toBe(
        'path,bytes,crc32,assetId,name,type,mimeType,company,companyId,project,projectId,uploadDate,key',
      );
      expect(lines).toHaveLength(3);
      expect(lines.find((line) => line.startsWith('"'))).toMatch(/^"The company .*\/Zoo, ""north"".mp4",0,00000000,/);
      for (const id of ids) expect(manifest).toContain(`,${id},`);

      // Again: everything is there. A file with other content is only replaced on request.
      expect(await exported({ to: { kind: 'directory', path } })).toMatchObject({ copied: 3, present: 3 });
    });

    test('an export has the assets, sidecars and names that were chosen', async () => {
      const path = newPlace();
      const request = { filter: { companyId, tag: ['red', 'blue'] }, names: '{uploadDate:yyyy}/{id}', sidecars: true };
      expect(await exported({ ...request, to: { kind: 'directory', path } })).toMatchObject({ copied: 1, failed: 0 });
      const asset = (await stage.assets(companyId)).find(({ name }) => name === 'beach')!;
      const files = await filesAt(path);
      expect([...files.keys()].sort()).toEqual([
        ...['', '.transcript.json', '.txt', '.vtt'].map((suffix) => `2024/${asset.id}.mp4${suffix}`),
        'manifest.csv',
      ]);
      expect(files.get(`2024/${asset.id}.mp4`)).toBe('two, longer');
    });

    test('an export of nothing is refused', async () => {
      const path = newPlace();
      const nothing = exported({ to: { kind: 'directory', path }, filter: { projectId: 'a typing error' } });
      await expect(nothing).rejects.toThrow('No asset in the bucket matches');
      expect(existsSync(path) ? await readdir(path) : []).toEqual([]);
      const { log } = stage.mirror.service.context;
      const request = { ...usual, filter: { projectId: 'a typing error' } };
      const list = exportList(config(), 'rclone', request, { log, problem: expect.fail });
      await expect(Array.fromAsync(list)).rejects.toThrow('No asset in the bucket matches');
    });

    test('an export of the list alone has the paths, or the keys for rclone', async () => {
      const { log } = stage.mirror.service.context;
      const list = async (format: 'csv' | 'rclone') =>
        (
          await Array.fromAsync(
            exportList(config(), format, { ...usual, filter: { companyId } }, { log, problem: expect.fail }),
          )
        ).join('');
      const csv = await list('csv');
      expect(csv.split('\r\n')).toHaveLength(5);
      const keys = (await list('rclone')).trim().split('\n');
      for (const { media } of await stage.assets(companyId)) expect(keys).toContain(media!.key);
      expect(keys).toHaveLength(3);
    });

    const entriesOf = async (archive: Buffer) => {
      const zip = await promisify<Buffer, yauzl.Options, yauzl.ZipFile>(yauzl.fromBuffer)(archive, {
        lazyEntries: true,
      });
      const entries = new Map<string, string>();
      zip.on('entry', async (entry: yauzl.Entry) => {
        const body = await promisify(
          zip.openReadStream.bind(zip) as (
            e: yauzl.Entry,
            then: (error: Error | null, body: NodeJS.ReadableStream) => void,
          ) => void,
        )(entry);
        entries.set(entry.fileName, (await buffer(body as NodeJS.ReadableStream)).toString());
        zip.readEntry();
      });
      zip.readEntry();
      await once(zip, 'end');
      return entries;
    };

    test('an export to a .zip file has the same files', async () => {
      const path = `${newPlace()}.zip`;
      expect(await exported({ to: { kind: 'zip', path } })).toMatchObject({ copied: 3, failed: 0, bytes: 14 });
      const entries = await entriesOf(await readFile(path));
      expect(entries.get('manifest.csv')).toContain(ids[0]);
      entries.delete('manifest.csv');
      expect(sorted(entries)).toEqual(sorted(contents));
    });

    test('the dashboard downloads the matching assets as an archive', async () => {
      const ask = (query: string) =>
        fetch(`${stage.ground.publicUrl}/api/asset-zip?${query}`, {
          headers: { authorization: `Bearer ${stage.ground.environment.ADMIN_TOKEN}` },
        });
      const answer = await ask(`companyId=${companyId}&tag=blue`);
      expect(answer.headers.get('content-type')).toBe('application/zip');
      expect(answer.headers.get('content-disposition')).toMatch(/^attachment; filename="assets-\d{4}-\d\d-\d\d.zip"$/);
      const entries = await entriesOf(Buffer.from(await answer.arrayBuffer()));
      expect([...entries.keys()].sort()).toEqual(
        [expect.stringMatching(/^No project\/Zoo/), expect.stringMatching(/^No project\/beach/), 'manifest.csv'].sort(
          (a, b) => (String(a) < String(b) ? -1 : 1),
        ),
      );
      const one = await entriesOf(Buffer.from(await (await ask(`id=${ids[0]}`)).arrayBuffer()));
      expect([...one.values()]).toContain('one');
      const none = await ask('tag=nothing');
      expect(none.status).toBe(404);
      expect(await none.json()).toMatchObject({ code: 'no_files' });
    });

    test('a damaged file is reported, is not written, and no archive with it is complete', async () => {
      const asset = (await stage.assets(companyId)).find(({ name }) => name === 'Beach')!;
      await stage.ground.storage.put(asset.media!.key, 'ONE');
      try {
        const path = newPlace();
        const so = await exported({ to: { kind: 'directory', path } });
        expect(so).toMatchObject({ copied: 2, failed: 1 });
        expect(so.problems[0]).toContain(`${asset.media!.key} is damaged: it has CRC-32`);
        expect([...(await filesAt(path)).keys()].filter((name) => name.endsWith('.mp4'))).toHaveLength(2);
        expect((await filesAt(path)).get('manifest.csv')).not.toContain(asset.id);

        const zip = `${newPlace()}.zip`;
        await expect(exported({ to: { kind: 'zip', path: zip } })).rejects.toThrow('is damaged: it has CRC-32');
        await expect(stat(zip)).rejects.toThrow('ENOENT');
        expect((await readdir(home)).filter((name) => name.endsWith('.partial'))).toEqual([]);

        const answer = await fetch(`${stage.ground.publicUrl}/api/asset-zip?companyId=${companyId}`, {
          headers: { authorization: `Bearer ${stage.ground.environment.ADMIN_TOKEN}` },
        });
        await expect(answer.arrayBuffer()).rejects.toThrow();
      } finally {
        await stage.ground.storage.put(asset.media!.key, 'one');
      }
    });

    test('an asset that is not in the bucket is reported, and an archive lists it', async () => {
      const [id] = await stage.upload(companyId, 1, { name: 'not yet' });
      await stage.sync((await stage.assets(companyId))[0]!.connectionId!, 'full');
      const { log } = stage.mirror.service.context;
      const problems: string[] = [];
      const options = { log, problem: (line: string) => problems.push(line) };
      const lines = await Array.fromAsync(exportList(config(), 'csv', { ...usual, filter: { companyId } }, options));
      expect(lines).toHaveLength(4);
      expect(problems).toEqual([expect.stringContaining(`asset ${id}: it has no complete copy in the bucket`)]);
      const so = await exported({ to: { kind: 'directory', path: newPlace() } });
      expect(so).toMatchObject({ copied: 3, failed: 1, problems });

      const answer = await fetch(`${stage.ground.publicUrl}/api/asset-zip?companyId=${companyId}`, {
        headers: { authorization: `Bearer ${stage.ground.environment.ADMIN_TOKEN}` },
      });
      const entries = await entriesOf(Buffer.from(await answer.arrayBuffer()));
      expect(entries.size).toBe(5);
      expect(entries.get('not-included.csv')).toContain(`${id},it has no complete copy`);
    });

    test('a file of the user with the name of the manifest is replaced only on request', async () => {
      const path = newPlace();
      await mkdir(path);
      await writeFile(join(path, 'manifest.csv'), 'mine');
      const request = { to: { kind: 'directory', path } as const, filter: { companyId, state: 'mirrored' as const } };
      await expect(exported(request)).rejects.toThrow('manifest.csv that no export wrote. Use --overwrite');
      expect(await filesAt(path)).toEqual(new Map([['manifest.csv', 'mine']]));
      expect(await exported({ ...request, overwrite: true })).toMatchObject({ copied: 3, failed: 0 });
    });

    test('an archive that exists is replaced only on request', async () => {
      const path = `${newPlace()}.zip`;
      const request = { to: { kind: 'zip', path } as const, filter: { companyId, state: 'mirrored' as const } };
      expect(await exported(request)).toMatchObject({ copied: 3 });
      await expect(exported(request)).rejects.toThrow('exists already. Use --overwrite');
      expect(await exported({ ...request, overwrite: true })).toMatchObject({ copied: 3, failed: 0 });
    });
  },
);
