import { Readable } from 'node:stream';
import { putHashed } from './put-hashed.ts';

/** Writes values as lines of JSON, compressed with gzip. Returns the bytes of the object. */
export async function putLines(
  storage: Parameters<typeof putHashed>[0],
  key: string,
  values: AsyncIterable<unknown>,
  options: Parameters<typeof putHashed>[3],
): Promise<number> {
  async function* lines(): AsyncGenerator<string> {
    for await (const value of values) {
      options.signal.throwIfAborted();
      yield `${JSON.stringify(value)}\n`;
    }
  }
  return (await putHashed(storage, key, Readable.from(lines()), options)).bytes;
}
