import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inject } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { type RestoreRequest, restoreFrom } from '../../../src/offline/restore.ts';
import { openDirectory } from '../../../src/storage/directory/directory.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { contentOf } from '../../support/mirror.ts';
import { newStage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const s3 = inject('s3');

/** What a restore reads from. */
export const sources = [
  { name: 'a directory', s3: undefined, versions: false },
  ...(s3 ? [{ name: `a bucket of ${s3.name} with versions`, s3, versions: true }] : []),
];

export type Restoring = Awaited<ReturnType<typeof newRestoring>>;

/** A stage and its worker, a company, and what restores its assets. */
export async function newRestoring({ s3, versions }: Pick<(typeof sources)[number], 's3' | 'versions'>) {
  const stage = await newStage({ s3, versions });
  const worker = workerOf(stage);
  const at = await stage.company();
  const home = await mkdtemp(join(tmpdir(), 'asset-mirror-restore-'));

  let places = 0;
  /** A new directory to restore to. */
  const newPlace = () => join(home, String(++places));
  /** Database and bucket, and nothing of a library, as on a machine that only restores. */
  const environment = () =>
    Object.fromEntries(
      Object.entries(stage.ground.environment).filter(([name]) => /^(DATABASE_URL|STORAGE_URL|S3_|AWS_)/.test(name)),
    );
  const to = (path: string) => ({ kind: 'directory' as const, path });

  async function restored(request: Partial<RestoreRequest> & Pick<RestoreRequest, 'to'>) {
    const problems: string[] = [];
    const report = { start() {}, problem: (line: string) => problems.push(line), progress() {} };
    const { log } = stage.mirror.service.context;
    const stop = new AbortController().signal;
    const so = await restoreFrom(
      readCopyConfig(environment()),
      { overwrite: false, ...request },
      { log, stop, report },
    );
    return { ...so, problems };
  }
  /** All objects below a place, as text by key. */
  async function textsIn(storage: Storage): Promise<Record<string, string>> {
    const texts: Record<string, string> = {};
    for await (const { key } of storage.list('')) {
      if (!key.startsWith('_mirror/')) texts[key] = (await contentOf(storage, key))!.toString('latin1');
    }
    return texts;
  }
  const textsAt = async (path: string) => textsIn(await openDirectory({ path }));
  async function objectsOf(id: string): Promise<Record<string, string>> {
    const all = Object.entries(await textsIn(stage.ground.storage));
    return Object.fromEntries(all.filter(([key]) => key.includes(`/${id}/`)));
  }

  async function newFilm(text: string, companyId = at.companyId, connectionId = at.connectionId): Promise<string> {
    const transcript = { language: 'de', durationSec: 3, text, vtt: `WEBVTT\n\n${text}\n`, words: null };
    const [id] = await stage.upload(companyId, 1, {
      ...{ filename: 'film.mp4', mimeType: 'video/mp4', assetType: 'videos', thumbnail: true },
      ...{ hasTranscript: true, transcript, content: { text } },
    });
    await stage.sync(connectionId, 'full');
    await worker.complete(id!);
    return id!;
  }
  async function replace(id: string, text: string, filename = 'film.mp4'): Promise<void> {
    await stage.admin.changeAsset(id, { content: { text }, filename });
    await stage.sync(at.connectionId, 'full');
    await worker.complete(id);
  }

  return {
    ...{ stage, worker, at, newPlace, environment, to, restored, textsIn, textsAt, objectsOf, newFilm, replace },
    async close() {
      await worker.close();
      await stage.close();
      await rm(home, { recursive: true, force: true });
    },
  };
}
