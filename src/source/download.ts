import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dispatcher, request } from 'undici';
import { Disconnected, Rejected, RetryLater, reasonOf } from '../errors.ts';
import type { Throttle } from './bandwidth.ts';
import { HttpError, throwFor } from './http.ts';

/** The file behind a signed link does not exist (any more). */
export class Missing extends Error {
  override readonly name = 'Missing';
}

/** A signed link as it is now, and the way to a new one when it has expired. */
export interface Link {
  url: string;
  renew(): Promise<string>;
}

export interface Download {
  /** What the server declares; undefined when it does not know before the end. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** True when a body that is cut would go unnoticed: neither a length nor a chunked end. */
  unbounded: boolean;
  /** The whole file, or an error: never a part without one. */
  body: Readable;
  /** The first bytes, at least so many unless the file has fewer. To be asked before the body is read; it still has them. */
  peek(bytes: number): Promise<Buffer>;
}

/** Gives a download up: only so many new starts in a row that bring nothing. */
const fruitless = 4;

/**
 * Downloads go to signed links: each request carries the exact Referer and no Authorization, through redirects too
 * (spec, section 4.7). When the line drops, stalls or the link expires in the middle, the body goes on at the next byte,
 * with a new link if need be, as long as the server proves by its ETag that it is the same version (RFC 9110, section 13.1.5).
 */
export function createDownloader(options: {
  referer: string;
  dispatcher: Dispatcher;
  stallMs: number;
  throttle?: Throttle;
}) {
  async function ask(
    url: string,
    signal: AbortSignal,
    headers: Record<string, string>,
  ): Promise<Dispatcher.ResponseData> {
    let at = url;
    for (let hops = 0; ; hops++) {
      if (!URL.canParse(at) || !/^https?:$/.test(new URL(at).protocol)) {
        throw new Error('the download link is not a web address');
      }
      const response = await request(at, {
        headers: { referer: options.referer, 'accept-encoding': 'identity', ...headers },
        dispatcher: options.dispatcher,
        headersTimeout: options.stallMs,
        signal,
      });
      const { location } = response.headers;
      if (![301, 302, 303, 307, 308].includes(response.statusCode) || typeof location !== 'string') return response;
      await discard(response);
      if (hops === 10) throw new Error('the download link redirects without end');
      if (!URL.canParse(location, at)) throw new Error('the download link redirects to what is not an address');
      const next = new URL(location, at);
      if (new URL(at).protocol === 'https:' && next.protocol === 'http:') {
        throw new Error('the download link redirects from https to http');
      }
      at = next.href;
    }
  }

  /** An answer whose body is of no use is read to its end, if that comes soon: then its socket can serve again. */
  async function discard(response: Dispatcher.ResponseData): Promise<void> {
    const signal = AbortSignal.timeout(Math.min(options.stallMs, 5000));
    await response.body.dump({ limit: 64 * 1024, signal }).catch(() => {});
  }

  /** A link that is refused is asked for anew, once; what a link's expiry looks like is not specified. */
  async function askWithLink(link: Link, signal: AbortSignal, headers: Record<string, string> = {}) {
    let response = await ask(link.url, signal, headers);
    // 404 at first is an answer about the file; of a file that was there a moment ago it may well be about the link.
    const about = headers.range ? [416, 429] : [404, 416, 429];
    if (response.statusCode >= 400 && response.statusCode < 500 && !about.includes(response.statusCode)) {
      await discard(response);
      link.url = await link.renew();
      response = await ask(link.url, signal, headers);
    }
    return response;
  }

  return {
    /** @throws Missing on 404; RetryLater; HttpError */
    async open(link: Link, signal: AbortSignal): Promise<Download> {
      const released = new AbortController();
      const either = AbortSignal.any([signal, released.signal]);
      const response = await askWithLink(link, either);
      const { headers, statusCode } = response;
      if (statusCode !== 200) {
        await discard(response);
        if (statusCode === 404 || statusCode === 410) throw new Missing(`the download link answered ${statusCode}`);
        if (statusCode >= 200 && statusCode < 300) throw new HttpError('download', statusCode);
        throwFor('download', statusCode, headers);
      }
      if (encoded(response)) {
        response.body.on('error', () => {}).destroy();
        throw new Error(
          `the download came encoded (${headers['content-encoding']}), although it was asked for as it is`,
        );
      }
      const length = headers['content-length'];
      const bytes = typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : undefined;
      const etag = typeof headers.etag === 'string' && headers.etag.startsWith('"') ? headers.etag : undefined;
      const chunks = wholeBody({ link, first: response, bytes, etag, signal: either });
      const peeked: Buffer[] = [];
      const body = new Readable({
        highWaterMark: 1 << 16,
        read() {
          const first = peeked.shift();
          if (first) {
            this.push(first);
            return;
          }
          chunks.next().then(
            ({ done, value }) => this.push(done ? null : value),
            (error) => this.destroy(error),
          );
        },
        destroy(error, callback) {
          // A body that is given up lets go of everything at once: a request, a pause, an answer that nobody has begun to read.
          released.abort();
          chunks.return(undefined).catch(() => {});
          callback(error);
        },
      });
      return {
        bytes,
        contentType: typeof headers['content-type'] === 'string' ? headers['content-type'] : undefined,
        unbounded: bytes === undefined && !String(headers['transfer-encoding'] ?? '').includes('chunked'),
        body,
        async peek(bytes) {
          try {
            for (let known = 0; known < bytes; ) {
              const { done, value } = await chunks.next();
              if (done) break;
              known += value.length;
              peeked.push(value);
            }
            return Buffer.concat(peeked);
          } catch (error) {
            // Or what is left of it would look like the end.
            body.on('error', () => {}).destroy(error as Error);
            throw error;
          }
        },
      };
    },
  };

  async function* wholeBody(from: {
    link: Link;
    first: Dispatcher.ResponseData;
    bytes: number | undefined;
    etag: string | undefined;
    signal: AbortSignal;
  }): AsyncGenerator<Buffer> {
    const { link, bytes, etag, signal } = from;
    let offset = 0;
    let response: Dispatcher.ResponseData | undefined = from.first;
    let starts = 0;
    try {
      for (;;) {
        let broken: unknown;
        try {
          response ??= await goOn({ link, bytes: bytes!, etag: etag!, offset, signal });
          for await (const chunk of watched(response.body, options.stallMs)) {
            offset += chunk.length;
            starts = 0;
            yield chunk;
            await options.throttle?.(chunk.length, signal);
          }
          if (bytes === undefined || offset === bytes) return;
          broken = new Error(`the download ended at byte ${offset} of ${bytes}`);
        } catch (error) {
          broken = error;
        }
        response = undefined;
        const canGoOn = bytes !== undefined && etag !== undefined && offset < bytes && !isFinal(broken);
        if (signal.aborted || !canGoOn || ++starts >= fruitless) throw broken;
        await sleep(starts * 250, undefined, { signal });
      }
    } finally {
      response?.body.on('error', () => {}).destroy();
    }
  }

  /** The rest of the same version, from `offset`. */
  async function goOn(at: { link: Link; bytes: number; etag: string; offset: number; signal: AbortSignal }) {
    const response = await askWithLink(at.link, at.signal, { range: `bytes=${at.offset}-`, 'if-range': at.etag });
    const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(String(response.headers['content-range'] ?? ''));
    const same =
      response.statusCode === 206 &&
      !encoded(response) &&
      range !== null &&
      Number(range[1]) === at.offset &&
      Number(range[2]) === at.bytes - 1 &&
      Number(range[3]) === at.bytes &&
      response.headers.etag === at.etag;
    if (same) return response;
    response.body.on('error', () => {}).destroy();
    if (response.statusCode >= 400) throwFor('download', response.statusCode, response.headers);
    // 200 is the whole body, and so never a continuation.
    throw new OtherVersion(`the download broke off at byte ${at.offset}, and the server cannot go on there`);
  }
}

export type Downloader = ReturnType<typeof createDownloader>;

class OtherVersion extends Error {
  override readonly name = 'OtherVersion';
}

/** What another try would only meet again, or must not be tried now. */
function isFinal(error: unknown): boolean {
  return [OtherVersion, RetryLater, Disconnected, Rejected].some((kind) => error instanceof kind);
}

function encoded(response: Dispatcher.ResponseData): boolean {
  return !['', 'identity'].includes(String(response.headers['content-encoding'] ?? ''));
}

/** The body's chunks; one that does not come for `stallMs` breaks it off. Time in which nobody reads does not count. */
async function* watched(body: Readable, stallMs: number): AsyncGenerator<Buffer> {
  let waiting = true;
  const timer = setTimeout(() => {
    if (waiting) body.destroy(new Error(`no byte came for ${stallMs / 1000} s`));
    else timer.refresh();
  }, stallMs);
  try {
    for await (const chunk of body) {
      waiting = false;
      yield chunk;
      waiting = true;
      timer.refresh();
    }
  } catch (error) {
    throw new Error(`the download broke off: ${reasonOf(error)}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}
