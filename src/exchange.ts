import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';

export interface Exchange {
  dispatcher: Dispatcher;
  method: 'GET' | 'PUT';
  origin: string;
  /** With its query, sent as it is. */
  path: string;
  headers: Record<string, string>;
  body?: Buffer;
  /** So much is kept of an answer with this status, in bytes; what goes on behind it is broken off. */
  limit: (status: number) => number;
  /** For all of it, in milliseconds; otherwise as long as the dispatcher's settings allow. */
  timeoutMs?: number;
  signal: AbortSignal | undefined;
}

export interface Answer {
  status: number;
  /** Of a header that comes twice the first, as with node:http. */
  headers: IncomingHttpHeaders;
  /** As UTF-8. */
  text: string;
  /** There was more: than is kept, or than came of a refusal before it broke off. */
  cut: boolean;
}

/**
 * One request and the answer to it, whatever that says, neither of them a stream. Nothing is tried twice. Of a refusal the
 * status counts, though what it says may break off. undici's own `request` makes a stream of each answer, which for a small
 * one takes as much processor time as all the rest.
 * @throws the signal's reason; TimeoutError; what undici throws
 */
export function exchange(asked: Exchange): Promise<Answer> {
  const { dispatcher, limit, timeoutMs, signal, ...options } = asked;
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    let status = 0;
    let headers: IncomingHttpHeaders = {};
    const said: Buffer[] = [];
    let room = 0;
    let request: Dispatcher.DispatchController | undefined;
    let broken: { reason: Error } | undefined;
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
    };
    const end = (cut: boolean) => {
      settle();
      resolve({ status, headers, text: Buffer.concat(said).toString('utf8'), cut });
    };
    const fail = (error: Error) => {
      settle();
      if (status >= 300 && !signal?.aborted) end(true);
      else reject(error);
    };
    const breakOff = (reason: Error) => {
      broken = { reason };
      fail(reason);
      request?.abort(reason);
    };
    const stop = () => breakOff(signal!.reason);
    const late = () => breakOff(new DOMException(`no answer within ${timeoutMs! / 1000} s`, 'TimeoutError'));
    const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
    signal?.addEventListener('abort', stop, { once: true });
    // undici looks at no signal here; whoever watches the requests does.
    const watched = { ...options, signal };
    dispatcher.dispatch(watched, {
      onRequestStart(controller) {
        request = controller;
        if (broken) controller.abort(broken.reason);
      },
      onResponseStart(_, answered, theirs) {
        status = answered;
        headers = firsts(theirs);
        room = limit(answered);
      },
      onResponseData(_, chunk) {
        said.push(chunk.length > room ? chunk.subarray(0, room) : chunk);
        room -= chunk.length;
        if (room >= 0) return;
        end(true);
        breakOff(new Error('the answer is too long'));
      },
      onResponseEnd: () => end(false),
      onResponseError: (_, error) => fail(error),
    });
  });
}

/** In place: they are nobody else's. */
function firsts(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  for (const name in headers) {
    const value = headers[name];
    if (Array.isArray(value)) headers[name] = value[0];
  }
  return headers;
}
