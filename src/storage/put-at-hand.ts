import type { IncomingHttpHeaders } from 'node:http';
import { type Dispatcher, errors } from 'undici';
import { type PutAnswer, silent } from './put-request.ts';

/** So much of an answer is kept. */
const mostSaid = 64 * 1024;

export interface PutAtHand {
  dispatcher: Dispatcher;
  origin: string;
  path: string;
  headers: Record<string, string>;
  /** In pieces, which are not put together. */
  body: Buffer[];
  signal: AbortSignal | undefined;
}

/** One PUT of bytes at hand, and the answer to it, whatever that says. Nothing is tried twice. */
export function putAtHand({ dispatcher, origin, path, headers, body, signal }: PutAtHand): Promise<PutAnswer> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    let answer: { status: number; headers: IncomingHttpHeaders };
    const said: Buffer[] = [];
    let room = mostSaid;
    let request: Dispatcher.DispatchController | undefined;
    const stop = () => {
      request?.abort(signal!.reason);
      reject(signal!.reason);
    };
    signal?.addEventListener('abort', stop, { once: true });
    const settle = () => signal?.removeEventListener('abort', stop);
    dispatcher.dispatch(
      // Any iterable may be a body by its documentation, if not by its types.
      { origin, method: 'PUT', path, headers, body: (body.length === 1 ? body[0] : body) as Buffer },
      {
        onRequestStart(controller) {
          request = controller;
          if (signal?.aborted) stop();
        },
        onResponseStart(_, status, theirs) {
          answer = { status, headers: theirs };
        },
        onResponseData(_, chunk) {
          if (room > 0) said.push(chunk);
          room -= chunk.length;
        },
        onResponseEnd() {
          settle();
          resolve({ ...answer, text: Buffer.concat(said).toString() });
        },
        onResponseError(_, error) {
          settle();
          const { HeadersTimeoutError, BodyTimeoutError } = errors;
          reject(error instanceof HeadersTimeoutError || error instanceof BodyTimeoutError ? silent() : error);
        },
      },
    );
  });
}
