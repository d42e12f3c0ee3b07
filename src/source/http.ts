import type { LookupFunction } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Agent, type Dispatcher, EnvHttpProxyAgent, fetch as proxiedFetch, request } from 'undici';
import { KnownError, namingSetting, RetryLater, retryAfter, withMargin } from '../floor/errors.ts';
import { networkProblem } from '../floor/network-problem.ts';
import { shortText } from '../floor/short-text.ts';

/** An answer with a status that is not a success. */
export class HttpError extends KnownError {
  readonly status: number;

  constructor(what: string, status: number) {
    super({ code: 'http_status', request: what, status });
    this.status = status;
  }
}

/** Outgoing proxies. `no`: hosts that are reached directly, separated by commas. Empty: none. */
export interface Proxies {
  http: string;
  https: string;
  no: string;
}

const connectMs = 10_000;

/**
 * Connections to the library, bounded per host. Bodies have no timeout here, because their readers check for stalls: a slow
 * bucket must not count as a stalled download.
 */
export function createAgent(options: {
  connections: number;
  proxies?: Proxies | undefined;
  /** Resolves names, except behind a proxy. */
  lookup?: LookupFunction;
}): Dispatcher {
  const settings = {
    connections: options.connections,
    connectTimeout: connectMs,
    ...(options.lookup && { connect: { lookup: options.lookup } }),
    headersTimeout: 60_000,
    bodyTimeout: 0,
    keepAliveTimeout: 10_000,
    allowH2: false,
  };
  if (!options.proxies) return new Agent(settings);
  const { http, https, no } = options.proxies;
  return new EnvHttpProxyAgent({ ...settings, httpProxy: http, httpsProxy: https, noProxy: no });
}

/** `fetch` through the proxies. */
export function fetchThrough(proxies: Proxies | undefined): typeof fetch {
  if (!proxies) return fetch;
  const dispatcher = createAgent({ connections: 10, proxies });
  return ((url: string, init: RequestInit) =>
    proxiedFetch(url, { ...init, dispatcher } as never)) as unknown as typeof fetch;
}

/** @throws RetryLater if the answer asks the whole connection to wait; HttpError otherwise */
export function throwFor(what: string, status: number, headers: Dispatcher.ResponseData['headers']): never {
  const wait = retryAfter(one(headers['retry-after']), one(headers.date));
  if (status === 429 || (status === 503 && wait)) {
    const { waitMs, asked } = wait ?? { waitMs: withMargin(30_000), asked: { askedMs: null } };
    throw new RetryLater({ code: 'asked_to_wait', request: what, status, ...asked }, waitMs, { scope: 'connection' });
  }
  throw new HttpError(what, status);
}

/** Runs a call that changes nothing up to three times, so that a temporary error does not cost an attempt. */
async function steadily<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (signal.aborted || tries === 3 || !isTemporary(error)) throw error;
      await sleep(tries * 300 + Math.random() * 300, undefined, { signal });
    }
  }
}

/** Whether an error is temporary: no connection, no answer, 5xx, or a truncated answer that undici cannot parse. */
export function isTemporary(error: unknown): boolean {
  if (error instanceof HttpError) return error.status >= 500;
  if (error instanceof Error && ['TimeoutError', 'HTTPParserError'].includes(error.name)) return true;
  if (networkProblem(error)) return true;
  if (error instanceof Error && error.cause !== undefined && isTemporary(error.cause)) return true;
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && /^(E[A-Z]+$|UND_ERR)/.test(code);
}

/** Whether only the end of the connection ends the body, so that a truncated one is not noticed (RFC 9112, section 6.3). */
export function isUnbounded(headers: Dispatcher.ResponseData['headers']): boolean {
  const { 'content-length': length, 'transfer-encoding': encoding } = headers;
  const declared = typeof length === 'string' && /^\d+$/.test(length);
  return !declared && !/chunked/i.test(String(encoding));
}

/** The maximum length of an answer, in bytes. */
const longestAnswer = 64 * 2 ** 20;
/** The body of an error is read up to this length, so that its connection can be used again. */
const longestRefusal = 64 * 1024;

/** GETs a JSON answer of the API, of at most 64 MiB, given as text. */
export async function getText(
  url: string,
  options: { what: string; headers: Record<string, string>; dispatcher: Dispatcher; signal: AbortSignal },
): Promise<{
  text: string;
  contentType: string;
  date: number | undefined;
  /** A truncated body would not be noticed: neither a length nor a chunked end. */
  unbounded: boolean;
}> {
  const { what, dispatcher } = options;
  return steadily(async () => {
    const late = new AbortController();
    // Not AbortSignal.timeout, whose timer outlives the answer.
    const timer = setTimeout(() => late.abort(new DOMException('no answer within 60 s', 'TimeoutError')), 60_000);
    const signal = AbortSignal.any([options.signal, late.signal]);
    try {
      const headers = { 'accept-encoding': 'identity', ...options.headers };
      const { statusCode, headers: said, body } = await request(url, { dispatcher, headers, signal });
      if (statusCode < 200 || statusCode > 299) {
        await body.dump({ limit: longestRefusal, signal }).catch(() => {});
        throwFor(what, statusCode, said);
      }
      const date = Date.parse(one(said.date) ?? '');
      const text = await shortText(body, longestAnswer);
      if (text === undefined) throw new Error(`${what}: the answer is larger than ${longestAnswer / 2 ** 20} MiB`);
      return {
        text,
        contentType: one(said['content-type']) ?? '',
        date: Number.isNaN(date) ? undefined : date,
        unbounded: isUnbounded(said),
      };
    } finally {
      clearTimeout(timer);
    }
  }, options.signal).catch((error) => {
    throw namingSetting(error, 'LIBRARY_API_URL');
  });
}

/** The value of a header; the first one if there are several. */
const one = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value);
