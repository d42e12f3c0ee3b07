import { type Dispatcher, request } from 'undici';
import type { Throttle } from './bandwidth.ts';
import type { LinkGuard } from './link-guard.ts';
import type { RateWatch } from './min-rate.ts';

type Response = Dispatcher.ResponseData;

/** A signed link, and how to get a new one when it has expired. */
export interface Link {
  url: string;
  renew(): Promise<string>;
  /** The limit of this download, in addition to that of all downloads. */
  throttle?: Throttle;
  /** Several parts of a file may need a new link at the same time: they share one request. */
  renewing?: Promise<string> | undefined;
  /** The rate of the file, over all its parts and resumptions. */
  rate?: RateWatch;
}

export interface LinkOptions {
  /** Undefined: none. */
  referer: string | undefined;
  dispatcher: Dispatcher;
  /** Checks each link and each redirect. Undefined: they may lead anywhere. */
  guard?: LinkGuard;
  stallMs: number;
}

/** Requests a link. If the link is refused, a new one is requested, once: the spec does not say how an expired link answers. */
export async function requestLink(
  options: LinkOptions,
  link: Link,
  signal: AbortSignal,
  headers: Record<string, string> = {},
): Promise<Response> {
  const url = link.url;
  const response = await follow(options, url, signal, headers);
  // A 404 at the start is about the file. Later the file is known to exist, so a 404 is about the link.
  const aboutFile = headers['if-range'] ? [416, 429] : [404, 416, 429];
  if (response.statusCode < 400 || response.statusCode > 499 || aboutFile.includes(response.statusCode))
    return response;
  await readToEnd(options, response);
  // Another part of the file may have renewed the link already.
  if (link.url === url) {
    link.renewing ??= link.renew().finally(() => {
      link.renewing = undefined;
    });
    link.url = await link.renewing;
  }
  return follow(options, link.url, signal, headers);
}

/** The answer behind all redirects, each of which is requested with the Referer. */
export async function follow(options: LinkOptions, url: string, signal: AbortSignal, headers: Record<string, string>) {
  const { referer } = options;
  let at = url;
  for (let hops = 0; ; hops++) {
    if (!URL.canParse(at) || !/^https?:$/.test(new URL(at).protocol)) {
      throw new Error('the download link is not a web address');
    }
    options.guard?.check(new URL(at));
    const response = await request(at, {
      headers: { ...(referer && { referer }), 'accept-encoding': 'identity', ...headers },
      dispatcher: options.dispatcher,
      headersTimeout: options.stallMs,
      signal,
    });
    const { location } = response.headers;
    if (![301, 302, 303, 307, 308].includes(response.statusCode) || typeof location !== 'string') return response;
    await readToEnd(options, response);
    if (hops === 10) throw new Error('the download link has too many redirects');
    if (!URL.canParse(location, at)) throw new Error('the download link redirects to an invalid address');
    at = new URL(location, at).href;
  }
}

/** Reads an unused short body to its end, so that the connection can be used again. */
export async function readToEnd({ stallMs }: LinkOptions, response: Response): Promise<void> {
  const signal = AbortSignal.timeout(Math.min(stallMs, 5000));
  await response.body.dump({ limit: 64 * 1024, signal }).catch(() => {});
}

/** Closes the connection of an answer. undici reports that as an error of the body. */
export function closeConnection({ body }: Response): void {
  body.on('error', () => {}).destroy();
}

/** A validator that two versions never share (RFC 9110, section 8.8.1). */
export function strongEtag({ headers: { etag } }: Response): string | undefined {
  return typeof etag === 'string' && etag.startsWith('"') ? etag : undefined;
}

export function isEncoded({ headers }: Response): boolean {
  return !['', 'identity'].includes(String(headers['content-encoding'] ?? ''));
}
