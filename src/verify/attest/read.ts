import { createHash } from 'node:crypto';
import { createGunzip } from 'node:zlib';
import { shortText } from '../../floor/short-text.ts';
import { inventoryPrefix } from '../../storage/keys.ts';
import { parseObject } from '../json-object.ts';
import type { Manifest } from '../publish/manifest.ts';
import type { Context } from './finding.ts';

type From = Pick<Context, 'storage' | 'signal'>;

/** The largest object that is read as JSON, in bytes: anyone who can write to the bucket could make one larger. */
const largestJson = 16 * 2 ** 20;

/** The JSON object at a key, whose fields may be anything; undefined: nothing is there, or something else. */
export async function jsonAt<T>({ storage, signal }: From, key: string): Promise<Partial<T> | undefined> {
  const body = await storage.get(key, { signal });
  return body && parseObject<T>((await shortText(body, largestJson)) ?? '');
}

/** The SHA-256 of an object; undefined: there is none. */
export async function sha256At({ storage, signal }: From, key: string): Promise<string | undefined> {
  const body = await storage.get(key, { signal });
  if (!body) return undefined;
  const hash = createHash('sha256');
  for await (const chunk of body) hash.update(chunk);
  return hash.digest('hex');
}

/** The lines of an inventory in order: the leaves of its tree. */
export async function* linesOf(from: From, { day, files, tombstones }: Manifest): AsyncGenerator<Buffer> {
  for (const { name } of [...files, tombstones]) {
    const body = await from.storage.get(`${inventoryPrefix(day)}${name}`, { signal: from.signal });
    if (!body) throw new Error(`${inventoryPrefix(day)}${name} has just been removed`);
    const gunzip = createGunzip();
    body.on('error', (error) => gunzip.destroy(error)).pipe(gunzip);
    yield* splitAtLineFeeds(gunzip);
  }
}

/** Does not use readline, which also splits at characters that a name may contain. */
async function* splitAtLineFeeds(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let rest = Buffer.alloc(0);
  for await (const chunk of chunks) {
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      yield Buffer.concat([rest, chunk.subarray(from, at)]);
      rest = Buffer.alloc(0);
      from = at + 1;
    }
    rest = Buffer.concat([rest, chunk.subarray(from)]);
  }
  if (rest.length > 0) yield rest;
}
