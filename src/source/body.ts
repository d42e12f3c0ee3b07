import { Readable } from 'node:stream';
import { reasonOf } from '../errors.ts';

/** Takes a chunk; when there is a promise, the next one may come once it is fulfilled. */
export type Take = (chunk: Buffer) => Promise<void> | undefined;

export interface Body {
  /** The whole file, or an error: never a part without one. */
  body: Readable;
  /** The first bytes, at least so many (of 64 KiB) unless the file has fewer. To be asked before the body is read; it still has them. */
  peek(bytes: number): Promise<Buffer>;
}

/** Made once: one for each body would cost more than all the rest of its end. */
const letGo = new DOMException('the body was let go', 'AbortError');

/** What `deliver` hands over as a stream, from the first moment on that somebody wants it. */
export function bodyOf(deliver: (take: Take) => Promise<void>, released: AbortController): Body {
  let begun = false;
  let wanted = false;
  let full: PromiseWithResolvers<void> | undefined;
  let peeking: { seen: Buffer[]; missing: number; done: (error?: unknown) => void } | undefined;

  const take: Take = (chunk) => {
    if (peeking) {
      peeking.seen.push(chunk);
      peeking.missing -= chunk.length;
      if (peeking.missing <= 0) peeking.done();
    }
    wanted = false;
    if (body.push(chunk) || wanted) return undefined;
    full = Promise.withResolvers();
    return full.promise;
  };
  const body = new Readable({
    highWaterMark: 1 << 16,
    read() {
      wanted = true;
      full?.resolve();
      if (begun) return;
      begun = true;
      deliver(take).then(
        () => {
          peeking?.done();
          body.push(null);
        },
        (error) => {
          peeking?.done(error);
          body.destroy(error);
        },
      );
    },
    destroy(error, callback) {
      // A body that is given up lets go of everything at once: a request, a pause, an answer that nobody has begun to read.
      released.abort(letGo);
      full?.reject(letGo);
      callback(error);
    },
  });
  // It may break before anybody has begun to read: whoever reads then is told.
  body.on('error', () => {});

  return {
    body,
    async peek(bytes) {
      const seen: Buffer[] = [];
      try {
        await new Promise<void>((resolve, reject) => {
          peeking = { seen, missing: bytes, done: (error) => (error === undefined ? resolve() : reject(error)) };
          body.read(0);
        });
        return Buffer.concat(seen);
      } finally {
        peeking = undefined;
      }
    },
  };
}

/**
 * Hands a body's chunks on, one by one, to its end. One that does not come for `stallMs` breaks it off; time in which the one
 * before has not been taken does not count.
 */
export function handOn(body: Readable, stallMs: number, take: Take): Promise<void> {
  return new Promise((resolve, reject) => {
    /** The chunk before is being taken. */
    let busy: Promise<void> | undefined;
    const timer = setTimeout(() => {
      if (busy) timer.refresh();
      else body.destroy(new Error(`no byte came for ${stallMs / 1000} s`));
    }, stallMs);
    const settle = () => {
      clearTimeout(timer);
      if (body.readableEnded) return resolve();
      const error = body.errored ?? new Error('the line was closed');
      reject(new Error(`the download broke off: ${reasonOf(error)}`, { cause: error }));
    };
    // Not before the last chunk has been taken: what goes on behind it must not come before.
    const over = () => (busy ? busy.then(settle, settle) : settle());
    body
      .on('error', () => {})
      .on('end', over)
      .on('close', over);
    if (body.destroyed) over();
    body.on('data', (chunk: Buffer) => {
      busy = take(chunk);
      if (!busy) {
        timer.refresh();
        return;
      }
      body.pause();
      busy.then(
        () => {
          busy = undefined;
          if (body.destroyed) return;
          timer.refresh();
          body.resume();
        },
        (error) => body.destroy(error),
      );
    });
  });
}
