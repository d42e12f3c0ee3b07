import type { Readable } from 'node:stream';
import { blockBytes } from '../content-hash.ts';
import { metered } from '../meter.ts';
import { type Part, type PutOptions, partBytesFor, type Stored, type Upload } from '../storage.ts';
import type { Bucket } from './bucket.ts';
import { abortUpload, beginUpload, completeUpload, putPart } from './multipart-uploads.ts';
import { writeBytes } from './write.ts';

/**
 * Writes a body of unknown length, or one that is too long for a PUT, as an upload in parts that ends with this call. A part
 * is held in memory until it is stored, so that it can be sent again; meanwhile the next one is read.
 */
export async function writeInParts(bucket: Bucket, key: string, body: Readable, put: PutOptions): Promise<Stored> {
  const { bytes: expected, signal, fence, ...headers } = put;
  const partBytes = Math.max(blockBytes, partBytesFor(expected ?? 0));
  const meter = metered(body, { expected, fence, signal });
  const parts: Part[] = [];
  let sending: Promise<unknown> = Promise.resolve();
  let upload: Upload | undefined;
  try {
    for await (const piece of piecesOf(meter, partBytes)) {
      if (!upload && piece.length < partBytes) return await writeBytes(bucket, key, piece, { ...headers, signal });
      upload ??= await beginUpload(bucket, key, { ...headers, signal, bytes: 0, partBytes });
      await sending;
      upload.bytes += piece.length;
      sending = putPart(bucket, upload, parts.length + 1, piece, signal).then((part) => parts.push(part));
      // A slow body must not delay the report of a failed part.
      sending.catch((error) => meter.destroy(error));
    }
    await sending;
    // Again: the last part may take longer than the margin of a lease.
    await fence?.();
    return await completeUpload(bucket, upload!, parts, signal);
  } catch (error) {
    await sending.catch(() => {});
    const removed = upload && abortUpload(bucket, upload).catch(() => {});
    // After an abort, do not wait for the store.
    signal?.throwIfAborted();
    await removed;
    throw meter.bodyError ?? error;
  } finally {
    body.destroy();
    meter.destroy();
  }
}

/** A stream in pieces of `size` bytes; the last one is shorter, and empty if there is nothing else. */
async function* piecesOf(stream: AsyncIterable<Buffer>, size: number): AsyncGenerator<Buffer> {
  let chunks: Buffer[] = [];
  let length = 0;
  let none = true;
  for await (const chunk of stream) {
    chunks.push(chunk);
    length += chunk.length;
    if (length < size) continue;
    const all = Buffer.concat(chunks);
    for (; length >= size; length -= size) yield all.subarray(all.length - length, all.length - length + size);
    chunks = [all.subarray(all.length - length)];
    none = false;
  }
  if (length > 0 || none) yield Buffer.concat(chunks);
}
