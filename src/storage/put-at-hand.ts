import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import type { PutAnswer } from './put-request.ts';

/** So much of an answer is kept. */
const mostSaid = 64 * 1024;

export interface PutAtHand {
  dispatcher: Dispatcher;
  origin: string;
  path: string;
  headers: Record<string, string>;
  body: Buffer;
  signal: AbortSignal | undefined;
}

/** One PUT of a few bytes at hand, and the answer to it, whatever that says. Nothing is tried twice. */
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
      { origin, method: 'PUT', path, headers, body },
      {
        onRequestStart(controller) {
          request = controller;
          if (signal?.aborted) stop();
        },
        onResponseStart(_, status, theirs) {
          answer = { status, headers: firsts(theirs) };
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
          reject(error);
        },
      },
    );
  });
}

/** Of a header that comes twice the first counts, as with node:http. */
function firsts(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const all = Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value[0] : value]);
  return Object.fromEntries(all);
}
