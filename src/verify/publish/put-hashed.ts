import { createHash } from 'node:crypto';
import { extname } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Storage } from '../../storage/storage.ts';

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
  // A store that fails may not have read the body: then nothing else would end the pipeline.
  stored.catch((error) => hashed.destroy(error));
  const [piped, put] = await Promise.allSettled([pipeline(steps, { signal }), stored]);
  signal.throwIfAborted();
  // First the error of the store: the pipeline only reports that the store closed its stream. An error of the source is in both.
  if (put.status === 'rejected') throw put.reason;
  if (piped.status === 'rejected') throw piped.reason;
  return { bytes, sha256: hash.digest('hex') };
}
