import { copyFileSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type Admin,
  connect,
  type DetailedAsset,
  type Library,
  type ListedAsset,
  startTestLibrary,
} from '../support/library.ts';

const SAMPLES = join(import.meta.dirname, '../../src/library/samples');

let root: string;
let library: Library;
let admin: Admin;
let headers: { authorization: string };
let companyId: string;

function put(path: string, content: string | { sample: string }, modified?: Date): void {
  const file = join(root, path);
  mkdirSync(join(file, '..'), { recursive: true });
  if (typeof content === 'string') writeFileSync(file, content);
  else copyFileSync(join(SAMPLES, content.sample), file);
  if (modified) utimesSync(file, modified, modified);
}

const LONG_AGO = new Date('2024-02-03T04:05:06Z');

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'Müller & Söhne '));
  put('Spring/clip 1.mp4', { sample: 'clip.mp4' }, LONG_AGO);
  put('Spring/social/story.mov', { sample: 'camera.mov' }, LONG_AGO);
  put('photo.JPG', { sample: 'square.jpg' }, LONG_AGO);
  put('notes', 'no extension', LONG_AGO);
  put('.hidden', 'x', LONG_AGO);
  symlinkSync('/etc/passwd', join(root, 'link.txt'));
  ({ library, admin } = await startTestLibrary({ content: { media: root }, transcodeDelay: 1e9 }));
  companyId = (await admin.companies())[0]!.id;
  headers = { authorization: `Bearer ${(await connect(library)).access_token}` };
});
afterAll(async () => {
  await library.close();
  rmSync(root, { recursive: true });
});

async function get<T>(path: string): Promise<T> {
  return (await (await fetch(`${library.apiUrl}/api/v1${path}`, { headers })).json()) as T;
}

async function listing(): Promise<Map<string, ListedAsset>> {
  const { assets } = await get<{ assets: ListedAsset[] }>(`/companies/${companyId}/assets`);
  return new Map(assets.map((asset) => [asset.name, asset]));
}

async function contentOf({ id }: ListedAsset): Promise<string> {
  const { asset } = await get<{ asset: DetailedAsset }>(`/assets/${id}`);
  return (await fetch(asset.download.url, { headers: { referer: library.appUrl } })).text();
}

describe('a folder', () => {
  it('a folder is a company, its subfolders are projects, and its files are assets with correct metadata', async () => {
    const assets = await listing();
    expect([...assets.keys()].sort()).toEqual(['clip 1.mp4', 'notes', 'photo.JPG', 'story.mov']);
    expect(assets.get('clip 1.mp4')).toMatchObject({
      mimeType: 'video/mp4',
      assetType: 'videos',
      projectName: 'Spring',
      uploadDate: LONG_AGO.getTime(),
      status: 'ready',
      width: 320,
      height: 180,
      duration: expect.closeTo(2, 1),
    });
    expect(assets.get('story.mov')).toMatchObject({
      mimeType: 'video/quicktime',
      assetType: 'social',
      tags: ['social'],
    });
    expect(assets.get('photo.JPG')).toMatchObject({ assetType: 'photography', width: 1000, height: 1000 });
    expect(assets.get('notes')).toMatchObject({
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      size: 12,
    });
    expect(assets.get('photo.JPG')).not.toHaveProperty('projectId');
    const { projects } = await get<{ projects: { name: string }[] }>(`/companies/${companyId}/projects`);
    expect(projects.map(({ name }) => name)).toEqual(['Spring']);
    expect(await contentOf(assets.get('notes')!)).toBe('no extension');
  });

  it('new, changed and deleted files of a folder are found without a restart', { tags: 'slow' }, async () => {
    const before = (await listing()).get('notes')!;
    put('Autumn/new.mp4', { sample: 'story.mp4' }, LONG_AGO);
    put('notes', 'changed content', new Date());
    rmSync(join(root, 'photo.JPG'));

    const after = await vi.waitUntil(
      async () => {
        const assets = await listing();
        const isThere = assets.has('new.mp4') && assets.get('notes')!.size === 15 && !assets.has('photo.JPG');
        return isThere && assets;
      },
      { timeout: 60_000 },
    );
    expect(after.get('new.mp4')).toMatchObject({ projectName: 'Autumn', status: 'processing' });
    expect(after.get('new.mp4')!.uploadDate).toBeGreaterThan(Date.now() - 60_000);
    expect(after.get('notes')!.id).toBe(before.id);
    expect(await contentOf(after.get('notes')!)).toBe('changed content');
  });

  it('a changed file is never served as the version that was listed', async () => {
    put('draft', 'first', LONG_AGO);
    const draft = await vi.waitUntil(async () => (await listing()).get('draft'), { timeout: 60_000 });
    put('draft', 'second', new Date());
    const served = await contentOf(draft).catch(() => 'interrupted');
    expect(['first', 'secon']).not.toContain(served);
    // Unless a scan has found the new version before the download.
    if (served === 'second') expect((await listing()).get('draft')!.size).toBe(6);
  });

  it('a file whose asset the admin API changes or deletes is listed once, or not at all', async () => {
    const notes = (await listing()).get('notes')!;
    await admin.changeAsset(notes.id, { tags: ['changed'] });
    const { assets } = await get<{ assets: ListedAsset[] }>(`/companies/${companyId}/assets`);
    expect(assets.filter(({ id }) => id === notes.id).map(({ tags }) => tags)).toEqual([['changed']]);
    await admin.removeAsset(notes.id);
    expect((await listing()).has('notes')).toBe(false);
  });

  it('a folder that does not exist fails the start', async () => {
    await expect(startTestLibrary({ content: { media: join(root, 'nowhere') } })).rejects.toThrow('nowhere');
  });
});
