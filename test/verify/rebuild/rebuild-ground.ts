import { crc32 } from 'node:zlib';
import { openStore } from '../../../src/store/store.ts';
import { type RebuildProgress, rebuild } from '../../../src/verify/rebuild/rebuild.ts';
import { silent } from '../../store/records.ts';
import { newGround } from '../../support/mirror.ts';
import { freePort } from '../../support/ports.ts';
import type { S3Server } from '../../support/services.ts';

export type RebuildGround = Awaited<ReturnType<typeof newRebuildGround>>;

/** A bucket and an empty database that is rebuilt from it. */
export async function newRebuildGround(s3: S3Server | undefined) {
  const ground = await newGround({ port: await freePort(), s3 });
  const { storage } = ground;
  const store = await openStore({ url: ground.environment.DATABASE_URL!, log: silent });
  const problems: string[] = [];

  const fromBucket = (signal = new AbortController().signal, onProgress?: (progress: RebuildProgress) => void) =>
    rebuild(
      { store, storage, thumbnails: { mirror: true } },
      { onProblem: (line) => problems.push(line), onProgress, signal },
    );

  /** A media file and its record, with optional irregularities. */
  async function put(
    id: string,
    options: { key?: string; text?: string | null; record?: object; media?: object } = {},
  ) {
    const { key = `acme/_/${id}/file.txt`, text = `content of ${id}` } = options;
    const bytes = Buffer.from(text ?? `content of ${id}`);
    const stored = text === null ? undefined : await storage.put(key, bytes);
    const record = {
      version: 1,
      companyId: 'acme',
      asset: { id, name: id, size: bytes.length, uploadDate: 1, status: 'ready' },
      media: {
        key,
        bytes: bytes.length,
        variant: 'original',
        checksums: { crc32: crc32(bytes).toString(16).padStart(8, '0') },
        etag: stored?.etag ?? null,
        ...options.media,
      },
      transcript: { state: 'none', keys: [] },
      thumbnail: null,
      mirroredAt: '2026-01-31T00:00:00.000Z',
      ...options.record,
    };
    await storage.put(`${key}.asset.json`, JSON.stringify(record));
    return record;
  }

  return {
    ground,
    store,
    storage,
    problems,
    fromBucket,
    put,
    async close() {
      await store.close();
      await ground.clear();
    },
  };
}
