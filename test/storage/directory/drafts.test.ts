import { readdir, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import { UploadLost } from '../../../src/storage/storage.ts';
import { until } from '../../support/until.ts';
import { bytesOf, KiB, MiB, streaming } from '../bodies.ts';
import { type Folder, newFolder } from './folder.ts';

describe('a directory', () => {
  let folder: Folder;
  let path: string;
  beforeEach(async () => {
    folder = await newFolder();
    ({ path } = folder);
  });
  afterEach(() => folder.clear());

  test('a directory removes abandoned drafts when it is opened, but none that is under way', async () => {
    const storage = await openDirectory({ path });
    const drafts = join(path, '.asset-mirror-tmp');
    await writeFile(join(drafts, 'abandoned'), 'x');
    await utimes(join(drafts, 'abandoned'), new Date(0), new Date(Date.now() - 25 * 60 * 60 * 1000));
    await writeFile(join(drafts, 'under-way'), 'x');
    await storage.close();
    await openDirectory({ path });
    expect(await readdir(drafts)).toEqual(['under-way']);
  });

  test('a directory keeps a draft under way however long its body pauses, in its own process and in others', async () => {
    const storage = await openDirectory({ path, touchMs: 20 });
    const other = await openDirectory({ path });
    const go = Promise.withResolvers<void>();
    const put = storage.put(
      'a/b',
      streaming(bytesOf(KiB), () => go.promise),
      { bytes: KiB },
    );
    const drafts = join(path, '.asset-mirror-tmp');
    const [draft] = await until('the draft', async () => {
      const names = await readdir(drafts);
      return names.length > 0 && names;
    });
    const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
    await utimes(join(drafts, draft!), old, old);
    await storage.check();
    await until(
      'the draft to be touched',
      async () => (await stat(join(drafts, draft!))).mtimeMs > Date.now() - 60_000,
    );
    await other.check();
    go.resolve();
    await put;
    expect(await storage.head('a/b')).toMatchObject({ bytes: KiB });
    await Promise.all([storage.close(), other.close()]);
  });

  test('an upload whose draft is gone does not take another file of its length for its own', async () => {
    const storage = await openDirectory({ path });
    const bytes = bytesOf(5 * MiB + 5);
    await storage.put('film', Buffer.alloc(bytes.length, 'another film '));
    const upload = await storage.uploads.begin('film', { bytes: bytes.length });
    const parts = [
      await storage.uploads.put(upload, 1, streaming(bytes.subarray(0, 5 * MiB))),
      await storage.uploads.put(upload, 2, streaming(bytes.subarray(5 * MiB))),
    ];
    const draft = join(path, '.asset-mirror-tmp', `${upload.id}.upload`);
    await rm(draft);
    await expect(storage.uploads.complete(upload, parts)).rejects.toThrow(UploadLost);
    // Renamed by a process that died before it removed the lines.
    await writeFile(join(path, 'film'), bytes);
    expect(await storage.uploads.complete(upload, parts)).toMatchObject({ bytes: bytes.length });
    expect(await readdir(join(path, '.asset-mirror-tmp'))).toEqual([]);
    await storage.close();
  });

  test('a directory removes abandoned drafts also while it is open', async () => {
    const storage = await openDirectory({ path, touchMs: 20 });
    const draft = join(path, '.asset-mirror-tmp', 'abandoned');
    const old = new Date(Date.now() - 2 * 60 * 60 * 1000);
    await writeFile(draft, 'x');
    await utimes(draft, old, old);
    await until('it to be swept', async () => (await readdir(join(path, '.asset-mirror-tmp'))).length === 0);
    await storage.close();
  });
});
