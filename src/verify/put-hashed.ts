import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Storage } from '../storage/storage.ts';

const contentTypes: Record<string, string> = {
  '.gz': 'application/gzip',
  '.json': 'application/json',
  '.parquet': 'application/vnd.apache.parquet',
};

/** Stores a stream of any length, gzipped for `.gz` keys. Returns its stored size and SHA-256. `fence`: see `PutOptions`. */
export async function putHashed(
  storage: Pick<Storage, 'put'>,
  key: string,
  source: Readable,
  { signal, fence }: { signal: AbortSignal; fence?: () => Promise<void> },
) {
  const hash = createHash('sha256');
  let bytes = 0;
  const hashed = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      hash.update(chunk);
      done(null, chunk);
    },
  });
  const steps = key.endsWith('.gz') ? [source, createGzip(), hashed] : [source, hashed];
  const contentType = contentTypes[extname(key)];
  const stored = storage.put(key, hashed, { contentType, signal, fence });
  await Promise.all([pipeline(steps, { signal }), stored]).catch((error) => {
    signal.throwIfAborted();
    throw error;
  });
  return { bytes, sha256: hash.digest('hex') };
}
