import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Storage } from '../storage/storage.ts';

/** Writes values as lines of JSON, compressed with gzip. Returns the bytes of the object. `fence`: see `PutOptions`. */
export async function putLines(
  storage: Pick<Storage, 'put'>,
  key: string,
  values: AsyncIterable<unknown>,
  { signal, fence }: { signal: AbortSignal; fence?: () => Promise<void> },
): Promise<number> {
  async function* lines(): AsyncGenerator<string> {
    for await (const value of values) {
      signal.throwIfAborted();
      yield `${JSON.stringify(value)}\n`;
    }
  }
  const zipped = createGzip();
  const [stored] = await Promise.all([
    storage.put(key, zipped, { contentType: 'application/gzip', signal, fence }),
    pipeline(Readable.from(lines()), zipped, { signal }),
  ]).catch((error) => {
    signal.throwIfAborted();
    throw error;
  });
  return stored.bytes;
}
