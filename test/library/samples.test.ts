import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { samples } from '../../src/library/content/samples.ts';
import { ASSET_TYPES, type Asset, statusAt, transcriptAt } from '../../src/library/model.ts';
import { connect, type DetailedAsset, type ListedAsset, startTestLibrary } from '../support/library.ts';
import { contentsOf } from './contents-of.ts';

const started = Date.UTC(2030, 0);
const make = (seed = 1) => samples(300, seed, started, { transcode: 5000, transcript: 20_000 });
const { assets, projects, companies } = make();
const withFile = assets.filter(({ original }) => original);

async function digests(assets: Asset[]): Promise<string[]> {
  return Promise.all(
    assets.flatMap(({ original, mp4 }) =>
      [original, mp4].map(async (body) =>
        body
          ? createHash('sha256')
              .update(await contentsOf(body()))
              .digest('hex')
          : 'none',
      ),
    ),
  );
}

function has(command: string): boolean {
  return spawnSync(command, ['-version']).status === 0;
}

describe('sample content', () => {
  it('samples are the same on every start, and differ with the seed', { tags: 'slow' }, async () => {
    const plain = ({ assets, ...rest }: ReturnType<typeof make>) => JSON.stringify({ ...rest, assets });
    expect(plain(make())).toBe(plain(make()));
    const some = (seed: number) => make(seed).assets.slice(0, 40);
    expect(await digests(some(1))).toEqual(await digests(assets.slice(0, 40)));
    expect(await digests(some(2))).not.toEqual(await digests(assets.slice(0, 40)));
  });

  it('samples have unique ids, and unique bytes of the stated size', async () => {
    expect(new Set(assets.map(({ id }) => id)).size).toBe(300);
    const known = (await digests(assets)).filter((digest) => digest !== 'none');
    expect(new Set(known).size).toBe(known.length);
    for (const { original, size } of withFile) expect((await contentsOf(original!())).length).toBe(size);
  });

  it('samples have all types in two companies and all projects, with upload dates over months in the past', () => {
    expect(new Set(assets.map(({ assetType }) => assetType))).toEqual(new Set(ASSET_TYPES));
    expect(new Set(assets.map(({ companyId }) => companyId)).size).toBe(companies.length);
    expect(new Set(assets.map(({ project }) => project?.id)).size).toBe(projects.length);
    const dates = assets.map(({ uploadDate }) => uploadDate);
    expect(Math.max(...dates)).toBeLessThan(Date.now());
    expect(Math.max(...dates) - Math.min(...dates)).toBeGreaterThan(200 * 24 * 3600 * 1000);
  });

  it('samples have realistic names', () => {
    const names = assets.map(({ filename }) => filename);
    expect(new Set(names).size).toBeLessThan(names.length);
    for (const kind of [/ /, /[äöüß]/, /\p{Extended_Pictographic}/u, /\p{Script=Han}/u, /^[^.]+$/, /.{150}/]) {
      expect(
        names.find((name) => kind.test(name)),
        String(kind),
      ).toBeDefined();
    }
  });

  it('samples are small files and some of more than a megabyte, and download quickly', () => {
    const sizes = withFile.map(({ size }) => size);
    expect(sizes.filter((size) => size > 1_000_000).length).toBeGreaterThan(10);
    expect(sizes.filter((size) => size < 50_000).length).toBeGreaterThan(50);
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(150_000_000);
  });

  it('samples have every status, and those in processing become ready', () => {
    const count = (now: number) => ({
      processing: assets.filter((asset) => statusAt(asset, now) === 'processing').length,
      unavailable: assets.filter((asset) => statusAt(asset, now) === 'unavailable').length,
      transcripts: assets.filter((asset) => transcriptAt(asset, now)).length,
      announced: assets.filter((asset) => asset.hasTranscript && !transcriptAt(asset, now)).length,
    });
    const [before, after] = [count(started), count(started + 60_000)];
    expect(before).toMatchObject({ processing: 3, unavailable: 2 });
    expect(before.announced).toBeGreaterThan(0);
    expect(after).toMatchObject({ processing: 0, unavailable: 2, announced: 0 });
    expect(after.transcripts).toBeGreaterThan(before.transcripts);
    expect(assets.filter(({ originalGone, mp4 }) => originalGone && mp4).length).toBeGreaterThan(2);
  });

  it('samples are served over HTTP', { tags: 'slow' }, async () => {
    const { library, admin } = await startTestLibrary({ content: { samples: 60 } });
    try {
      const headers = { authorization: `Bearer ${(await connect(library)).access_token}` };
      const get = async <T>(path: string): Promise<T> => {
        const response = await fetch(`${library.apiUrl}/api/v1${path}`, { headers });
        if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
        return (await response.json()) as T;
      };
      const listed = [];
      for (const { id } of await admin.companies()) {
        listed.push(...(await get<{ assets: ListedAsset[] }>(`/companies/${id}/assets?limit=100`)).assets);
      }
      expect(listed).toHaveLength(60);
      for (const { id, size, status } of listed) {
        const { asset } = await get<{ asset: DetailedAsset }>(`/assets/${id}`);
        const referer = library.appUrl;
        const original = await fetch(asset.download.url, { headers: { referer } });
        const bytes = (await original.arrayBuffer()).byteLength;
        if (original.status === 200) expect(bytes).toBe(size);
        else expect(status === 'unavailable' || asset.download.mp4Url !== null).toBe(true);
        const thumbnail = await fetch(asset.thumbnailUrl!, { headers: { referer } });
        expect(thumbnail.headers.get('content-type')).toMatch(/^image\/(png|jpeg)$/);
        expect((await thumbnail.arrayBuffer()).byteLength).toBeGreaterThan(100);
      }
    } finally {
      await library.close();
    }
  });
});

describe.skipIf(!has('ffprobe'))('sample files and ffprobe', () => {
  let directory: string;
  beforeAll(() => {
    directory = mkdtempSync(join(tmpdir(), 'samples-'));
  });
  afterAll(() => rmSync(directory, { recursive: true }));

  const kinds = Map.groupBy(
    withFile.filter(({ mimeType }) => /^(image\/(jpeg|png)|video|audio)/.test(mimeType)),
    ({ mimeType, width }) => `${mimeType} ${width ?? ''}`,
  );

  it.each([...kinds])('ffprobe finds the same metadata in a sample %s', async (_kind, [asset]) => {
    for (const body of [asset!.original!(), asset!.mp4?.()]) {
      if (!body) continue;
      const file = join(directory, 'file');
      writeFileSync(file, await contentsOf(body));
      const output = execFileSync('ffprobe', ['-v', 'error', '-show_format', '-show_streams', '-of', 'json', file]);
      const { format, streams } = JSON.parse(String(output));
      if (asset!.duration !== null) expect(Math.abs(format.duration - asset!.duration)).toBeLessThan(0.05);
      if (asset!.width !== null && body.type === asset!.mimeType && body.size === asset!.size) {
        expect(streams[0]).toMatchObject({ width: asset!.width, height: asset!.height });
      }
    }
  });
});

describe.skipIf(!has('unzip'))('sample archives and unzip', () => {
  it.each(['application/zip', 'wordprocessingml'])('unzip opens a sample %s', async (type) => {
    const directory = mkdtempSync(join(tmpdir(), 'archives-'));
    try {
      const asset = withFile.find(({ mimeType }) => mimeType.includes(type))!;
      const file = join(directory, 'file.zip');
      writeFileSync(file, await contentsOf(asset.original!()));
      expect(String(execFileSync('unzip', ['-t', file]))).toMatch('No errors detected');
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});
