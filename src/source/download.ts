import type { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';
import { KnownError } from '../floor/errors.ts';
import { type Body, bodyOf } from './body.ts';
import { closeConnection, isEncoded, type Link, readToEnd, requestLink, strongEtag } from './follow-link.ts';
import { HttpError, isUnbounded, throwFor } from './http.ts';
import { deliver, type ResumeOptions } from './resume.ts';

export type { Link } from './follow-link.ts';
export { OtherVersion, RangeRefused } from './resume.ts';

/** The file behind a signed link does not exist (any more). */
export class Missing extends KnownError {}

/** A version of a file that can be fetched in parts: its length, and the strong ETag that every part must have. */
export interface Pinned {
  bytes: number;
  etag: string;
  contentType: string | undefined;
}

export interface Download extends Body {
  /** The length that the server declares; undefined if it does not. */
  bytes: number | undefined;
  contentType: string | undefined;
  /** True if a truncated body would go unnoticed: neither a length nor a chunked end. */
  unbounded: boolean;
}

export type Downloader = ReturnType<typeof createDownloader>;

/**
 * Downloads from signed links: each request carries the exact Referer and no Authorization, through redirects too (spec,
 * section 4.7). When the connection drops or stalls, or the link expires, the body continues at the next byte, with a new
 * link if needed, as long as the ETag proves that it is the same version (RFC 9110, section 13.1.5).
 */
export function createDownloader(options: ResumeOptions) {
  return {
    /**
     * The version behind a link; undefined if it can only be fetched whole.
     * @throws Missing on 404 or 410; RetryLater; HttpError
     */
    pin: (link: Link, signal: AbortSignal) => pin(options, link, signal),

    /** The bytes from `from` to before `to` of a pinned version. The body ends with OtherVersion when it is gone. */
    part(link: Link, { bytes, etag }: Pinned, from: number, to: number, signal: AbortSignal): Readable {
      const released = new AbortController();
      const either = AbortSignal.any([signal, released.signal]);
      return bodyOf(deliver(options, { link, from, to, total: bytes, etag, signal: either }), released).body;
    },

    /** @throws Missing on 404 or 410; RetryLater; HttpError */
    open: (link: Link, signal: AbortSignal) => open(options, link, signal),
  };
}

async function pin(options: ResumeOptions, link: Link, signal: AbortSignal): Promise<Pinned | undefined> {
  const response = await requestLink(options, link, signal, { range: 'bytes=0-0' });
  const { headers, statusCode } = response;
  if (statusCode === 206) await readToEnd(options, response);
  else closeConnection(response);
  throwIfMissing(statusCode);
  // 416: an empty file has no first byte.
  if (statusCode === 200 || statusCode === 416) return undefined;
  if (statusCode !== 206) throwFor('download', statusCode, headers);
  const total = /^bytes 0-0\/(\d+)$/.exec(String(headers['content-range'] ?? ''))?.[1];
  const etag = strongEtag(response);
  if (total === undefined || etag === undefined || isEncoded(response)) return undefined;
  return { bytes: Number(total), etag, contentType: typeOf(response) };
}

async function open(options: ResumeOptions, link: Link, signal: AbortSignal): Promise<Download> {
  const released = new AbortController();
  const either = AbortSignal.any([signal, released.signal]);
  const response = await requestLink(options, link, either);
  const { headers, statusCode } = response;
  if (statusCode !== 200) {
    await readToEnd(options, response);
    throwIfMissing(statusCode);
    if (statusCode >= 200 && statusCode < 300) throw new HttpError('download', statusCode);
    throwFor('download', statusCode, headers);
  }
  if (isEncoded(response)) {
    closeConnection(response);
    throw new Error(`the download is encoded (${headers['content-encoding']}), although the request forbids it`);
  }
  const length = headers['content-length'];
  const bytes = typeof length === 'string' && /^\d+$/.test(length) ? Number(length) : undefined;
  const whole = { from: 0, to: bytes, total: bytes, etag: strongEtag(response) };
  const chunks = deliver(options, { link, first: response, ...whole, signal: either });
  return { bytes, contentType: typeOf(response), unbounded: isUnbounded(headers), ...bodyOf(chunks, released) };
}

function throwIfMissing(status: number): void {
  if (status === 404 || status === 410) throw new Missing({ code: 'http_status', request: 'download', status });
}

function typeOf({ headers }: Dispatcher.ResponseData): string | undefined {
  return typeof headers['content-type'] === 'string' ? headers['content-type'] : undefined;
}
