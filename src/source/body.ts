import { Readable } from 'node:stream';
import { reasonOf } from '../floor/errors.ts';

export interface Body {
  /** The whole file; a truncated one ends with an error. */
  body: Readable;
  /** The first `bytes` (up to 64 KiB) or more, unless the file is shorter. Call it before reading; the body still delivers them. */
  peek(bytes: number): Promise<Buffer>;
}

/** Why a request is aborted when its body is destroyed. */
const givenUp = new DOMException('the body was given up', 'AbortError');

/** A stream of the chunks. `released` is aborted when the stream is destroyed, so that no request outlives it. */
export function bodyOf(chunks: AsyncGenerator<Buffer>, released: AbortController): Body {
  const peeked: Buffer[] = [];
  const body = new Readable({
    highWaterMark: 1 << 16,
    async read() {
      try {
        const chunk = peeked.shift() ?? (await chunks.next()).value;
        body.push(chunk ?? null);
      } catch (error) {
        body.destroy(error as Error);
      }
    },
    destroy(error, callback) {
      released.abort(givenUp);
      void chunks.return(undefined).catch(() => {});
      callback(error);
    },
  });
  // A body may fail before it is read: that must not end the process. The reader still gets the error.
  body.on('error', () => {});

  return {
    body,
    async peek(bytes) {
      try {
        for (let seen = 0; seen < bytes; seen += peeked.at(-1)!.length) {
          const { value } = await chunks.next();
          if (!value) break;
          peeked.push(value);
        }
      } catch (error) {
        body.destroy(error as Error);
        throw error;
      }
      return Buffer.concat(peeked);
    },
  };
}

/** The chunks of an answer. It is an error if none comes for `stallMs`; the time between two reads does not count. */
export async function* chunksOf(body: Readable, stallMs: number): AsyncGenerator<Buffer> {
  const stalled = () => body.destroy(new DOMException(`no byte came for ${stallMs / 1000} s`, 'TimeoutError'));
  let timer = setTimeout(stalled, stallMs);
  try {
    for await (const chunk of body) {
      clearTimeout(timer);
      yield chunk;
      timer = setTimeout(stalled, stallMs);
    }
  } catch (error) {
    throw new Error(`the download was interrupted: ${reasonOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}
