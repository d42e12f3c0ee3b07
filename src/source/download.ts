import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dispatcher, request } from 'undici';
import { Disconnected, Rejected, RetryLater } from '../errors.ts';
import type { Throttle } from './bandwidth.ts';
import { type Body, bodyOf, chunksOf } from './body.ts';
import { HttpError, isUnbounded, throwFor } from './http.ts';
import type { LinkGuard } from './links.ts';
import { type MinRate, RateWatch, TooSlow } from './min-rate.ts';

/** The file behind a signed link does not exist (any more). */
export class Missing extends Error {
  override readonly name = 'Missing';
}

/** A signed link as it is now, and the way to a new one when it has expired. */
export interface Link {
  url: string;
  renew(): Promise<string>;
  /** What this download keeps to, below what all of them do. */
  throttle?: Throttle;
  /** Several parts of a file may find out at the same time: one asks for all. */
  renewing?: Promise<string> | undefined;
  /** How fast the file comes, over all its parts and new starts. */
  rate?: RateWatch;
}

/** One version of a file that can be had in pieces: its length, and the strong ETag that every piece must carry. */
export interface Pinned {
  bytes: number;
  etag: string;
  contentType: string | undefined;
}

export interface Download extends Body {
  /** What the server declares; undefined when it does not know before the end. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** True when a body that is cut would go unnoticed: neither a length nor a chunked end. */
  unbounded: boolean;
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
  /** Checks each link and each redirect. Undefined: they may lead anywhere. */
  guard?: LinkGuard;
  stallMs: number;
  /** A slower file breaks off with TooSlow. Undefined: any rate will do. */
  minRate?: MinRate | undefined;
  throttle?: Throttle;
  /** A download goes on where it was broken off: called with the bytes that are not asked for again. */
  onResumed?: (bytes: number) => void;
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
      options.guard?.check(new URL(at));
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
    const url = link.url;
    let response = await ask(url, signal, headers);
    // 404 at first is an answer about the file; of a file that was there a moment ago it may well be about the link.
    const about = headers['if-range'] ? [416, 429] : [404, 416, 429];
    if (response.statusCode >= 400 && response.statusCode < 500 && !about.includes(response.statusCode)) {
      await discard(response);
      // Unless somebody else has just done so.
      if (link.url === url) {
        link.renewing ??= link.renew().finally(() => {
          link.renewing = undefined;
        });
        link.url = await link.renewing;
      }
      response = await ask(link.url, signal, headers);
    }
    return response;
  }

  return {
    /**
     * What there is behind a link, when it can be had in pieces of one version; undefined when it can only be had whole.
     * @throws Missing on 404; RetryLater; HttpError
     */
    async pin(link: Link, signal: AbortSignal): Promise<Pinned | undefined> {
      const response = await askWithLink(link, signal, { range: 'bytes=0-0' });
      const { headers, statusCode } = response;
      if (statusCode === 206) await discard(response);
      else drop(response);
      throwIfMissing(statusCode);
      // Of an empty file there is no first byte.
      if (statusCode === 200 || statusCode === 416) return undefined;
      if (statusCode !== 206) throwFor('download', statusCode, headers);
      const total = /^bytes 0-0\/(\d+)$/.exec(String(headers['content-range'] ?? ''))?.[1];
      const etag = strongEtag(response);
      if (total === undefined || etag === undefined || encoded(response)) return undefined;
      return { bytes: Number(total), etag, contentType: typeOf(response) };
    },

    /** The bytes from `from` to before `to` of a pinned version. The body ends with OtherVersion when it is gone. */
    part(link: Link, of: Pinned, from: number, to: number, signal: AbortSignal): Readable {
      const released = new AbortController();
      const either = AbortSignal.any([signal, released.signal]);
      const range = { link, from, to, total: of.bytes, etag: of.etag, signal: either };
      return bodyOf(deliver(range), released).body;
    },

    /** @throws Missing on 404; RetryLater; HttpError */
    async open(link: Link, signal: AbortSignal): Promise<Download> {
      const released = new AbortController();
      const either = AbortSignal.any([signal, released.signal]);
      const response = await askWithLink(link, either);
      const { headers, statusCode } = response;
      if (statusCode !== 200) {
        await discard(response);
        throwIfMissing(statusCode);
        if (statusCode >= 200 && statusCode < 300) throw new HttpError('download', statusCode);
        throwFor('download', statusCode, headers);
      }
      if (encoded(response)) {
        drop(response);
        throw new Error(
          `the download came encoded (${headers['content-encoding']}), although it was asked for as it is`,
        );
      }
      const length = headers['content-length'];
      const bytes = typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : undefined;
      const etag = strongEtag(response);
      const whole = { link, first: response, from: 0, to: bytes, total: bytes, etag, signal: either };
      return {
        bytes,
        contentType: typeOf(response),
        unbounded: isUnbounded(headers),
        ...bodyOf(deliver(whole), released),
      };
    },
  };

  /** The bytes from `from` to before `to`, or to the end; of `total`, the whole file's, as far as that is known. */
  async function* deliver(of: {
    link: Link;
    first?: Dispatcher.ResponseData;
    from: number;
    to: number | undefined;
    total: number | undefined;
    etag: string | undefined;
    signal: AbortSignal;
  }): AsyncGenerator<Buffer> {
    const { link, to, total, etag, signal } = of;
    let offset = of.from;
    let response: Dispatcher.ResponseData | undefined = of.first;
    /** Where the answer in hand ends, by its own word; a server may give less than it was asked for. */
    let end = to;
    let starts = 0;
    let wasBroken = false;
    if (options.minRate) link.rate ??= new RateWatch(options.minRate);
    const { rate } = link;
    rate?.begin();
    try {
      for (;;) {
        let broken: unknown;
        try {
          if (!response) {
            ({ response, end } = await goOn({ link, to: to!, total: total!, etag: etag!, offset, signal }));
            if (wasBroken && offset > of.from) options.onResumed?.(offset - of.from);
          }
          for await (const chunk of chunksOf(response.body, options.stallMs)) {
            const tooSlow = rate?.received(chunk.length);
            if (tooSlow) throw tooSlow;
            offset += chunk.length;
            starts = 0;
            rate?.hold();
            try {
              await Promise.all([link.throttle?.(chunk.length, signal), options.throttle?.(chunk.length, signal)]);
              yield chunk;
            } finally {
              // Also of a body that is given up here: other parts of the file share the clock.
              rate?.release();
            }
          }
          if (to === undefined || (offset === to && end === to)) return;
          if (offset === end) {
            response = undefined;
            wasBroken = false;
            continue;
          }
          broken = new Error(`the download ended at byte ${offset} of ${end}`);
        } catch (error) {
          broken = error;
        }
        response = undefined;
        wasBroken = true;
        const canGoOn = to !== undefined && etag !== undefined && offset < to && offset <= end! && !isFinal(broken);
        if (signal.aborted || !canGoOn || ++starts >= fruitless) throw broken;
        await sleep(starts * 250, undefined, { signal });
      }
    } finally {
      rate?.end();
      if (response) drop(response);
    }
  }

  /** The same version from `offset` on, to before `to` or to before where the server ends it (RFC 9110, section 15.3.7). */
  async function goOn(at: {
    link: Link;
    to: number;
    total: number;
    etag: string;
    offset: number;
    signal: AbortSignal;
  }) {
    const last = at.to === at.total ? '' : at.to - 1;
    const headers = { range: `bytes=${at.offset}-${last}`, 'if-range': at.etag };
    const response = await askWithLink(at.link, at.signal, headers);
    const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(String(response.headers['content-range'] ?? ''));
    const same =
      response.statusCode === 206 &&
      !encoded(response) &&
      range !== null &&
      Number(range[1]) === at.offset &&
      Number(range[2]) >= at.offset &&
      Number(range[2]) < at.to &&
      Number(range[3]) === at.total &&
      response.headers.etag === at.etag;
    if (same) return { response, end: Number(range[2]) + 1 };
    drop(response);
    if (response.statusCode >= 400) throwFor('download', response.statusCode, response.headers);
    // 200 is the whole body, and so never a continuation.
    throw new CannotGoOn(`the download broke off at byte ${at.offset}, and the server cannot go on there`);
  }
}

export type Downloader = ReturnType<typeof createDownloader>;

/** What the server has now cannot be joined to what it gave before. */
export class OtherVersion extends Error {
  override readonly name: string = 'OtherVersion';
}

/** Asked for the rest of a version, the server gives something else: another one, or never just the rest. */
export class CannotGoOn extends OtherVersion {
  override readonly name = 'CannotGoOn';
}

/** What another try would only meet again, or must not be tried now. */
function isFinal(error: unknown): boolean {
  return [OtherVersion, RetryLater, Disconnected, Rejected, TooSlow].some((kind) => error instanceof kind);
}

function throwIfMissing(status: number): void {
  if (status === 404 || status === 410) throw new Missing(`the download link answered ${status}`);
}

/** Closes the connection of an answer. undici reports that as an error of the body. */
function drop({ body }: Dispatcher.ResponseData): void {
  body.on('error', () => {}).destroy();
}

/** A validator that two versions never share (RFC 9110, section 8.8.1). */
function strongEtag({ headers: { etag } }: Dispatcher.ResponseData): string | undefined {
  return typeof etag === 'string' && etag.startsWith('"') ? etag : undefined;
}

function typeOf({ headers }: Dispatcher.ResponseData): string | undefined {
  return typeof headers['content-type'] === 'string' ? headers['content-type'] : undefined;
}

function encoded(response: Dispatcher.ResponseData): boolean {
  return !['', 'identity'].includes(String(response.headers['content-encoding'] ?? ''));
}
