import { connect, isIP, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { type ConnectionOptions, connect as connectSecurely } from 'node:tls';
import { Agent, type buildConnector, type Dispatcher, EnvHttpProxyAgent } from 'undici';
import { filled, lend } from '../buffers.ts';
import { askedToWait, RetryLater, retryAfter, withMargin } from '../errors.ts';
import { exchange } from '../exchange.ts';

/** An answer with a status that is not a success. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;

  constructor(what: string, status: number) {
    super(`${what}: the service answered ${status}`);
    this.status = status;
  }
}

/** Proxies on the way out; `no` names, with commas between them, what is reached without. Empty: none. */
export interface Proxies {
  http: string;
  https: string;
  no: string;
}

const connectMs = 10_000;

/**
 * A set of sockets for what is asked of the service, bounded per host. Bodies are watched by whoever reads
 * them (a transfer whose bucket is slow is not a stalled one), so no timeout for them here.
 */
export function createAgent(options: {
  connections: number;
  proxies?: Proxies | undefined;
  /** Reads into lent buffers, for bodies that are handed back; not through a proxy. */
  lends?: boolean;
}): Dispatcher {
  const settings = {
    connections: options.connections,
    connectTimeout: connectMs,
    headersTimeout: 60_000,
    bodyTimeout: 0,
    keepAliveTimeout: 10_000,
    allowH2: false,
  };
  if (!options.proxies) return new Agent(options.lends ? { ...settings, connect: lendingConnector() } : settings);
  const { http, https, no } = options.proxies;
  return new EnvHttpProxyAgent({ ...settings, httpProxy: http, httpsProxy: https, noProxy: no });
}

/** Connections that read into lent buffers. What was read is pushed by hand, and comes out of the socket as ever. */
function lendingConnector(): buildConnector.connector {
  const sessions = new Map<string, Buffer>();
  return (to, callback) => {
    const secure = to.protocol === 'https:';
    const where = { host: to.hostname, port: Number(to.port || (secure ? 443 : 80)) };
    const host = `${to.hostname}:${where.port}`;
    const name = to.servername ?? (isIP(to.hostname) ? '' : to.hostname);
    const secured = () => {
      const session = sessions.get(host);
      return { ...where, ...(name && { servername: name }), ...(session && { session }), ALPNProtocols: ['http/1.1'] };
    };
    const plain = { buffer: lend, callback: (bytes: number, buffer: Uint8Array) => socket.push(filled(buffer, bytes)) };
    const socket: Socket = secure ? connectGathering(secured()) : connect({ ...where, onread: plain });
    socket.setNoDelay(true).setKeepAlive(true, 60_000);
    socket.on('session', (session) => {
      if (sessions.size >= 100) sessions.clear();
      sessions.set(host, session);
    });
    const late = setTimeout(
      () => socket.destroy(Object.assign(new Error('no connection within 10 s'), { code: 'ETIMEDOUT' })),
      connectMs,
    );
    const failed = (error: Error) => {
      clearTimeout(late);
      callback(error, null);
    };
    // A line whose certificate was refused may break once more, with nobody to hear of it.
    socket.on('error', () => {});
    socket.once('error', failed).once(secure ? 'secureConnect' : 'connect', () => {
      clearTimeout(late);
      socket.off('error', failed);
      callback(null, socket);
    });
  };
}

/** TLS gives one record at a time: those that come in one turn of the event loop go on in one lent buffer. */
function connectGathering(options: ConnectionOptions): Socket {
  // As much as a record holds (RFC 8446, section 5.1).
  const record = Buffer.allocUnsafeSlow(2 ** 14);
  let gathered: Buffer | undefined;
  let bytes = 0;
  const flush = () => {
    if (!gathered) return;
    const chunk = filled(gathered, bytes);
    gathered = undefined;
    bytes = 0;
    push(chunk);
  };
  const callback = (length: number) => {
    if (gathered && gathered.length - bytes < length) flush();
    if (!gathered) {
      gathered = lend();
      setImmediate(flush);
    }
    bytes += record.copy(gathered, bytes, 0, length);
    return socket.readableLength < socket.readableHighWaterMark;
  };
  const socket = connectSecurely(Object.assign(options, { onread: { buffer: record, callback } }));
  const push = socket.push.bind(socket);
  socket.push = (chunk, encoding) => {
    // The end does not come before what is gathered.
    if (chunk === null) flush();
    return push(chunk, encoding);
  };
  return socket;
}

/** @throws RetryLater when the answer asks everyone of this connection to wait; HttpError for all else that is no success */
export function throwFor(what: string, status: number, headers: Dispatcher.ResponseData['headers']): never {
  const wait = retryAfter(headers['retry-after'], headers.date);
  if (status === 429 || (status === 503 && wait)) {
    const { at, text } = wait ?? { at: withMargin(30_000), text: 'and did not say how long' };
    throw new RetryLater(`${what}: ${askedToWait} (${status}) ${text}`, at, {
      scope: 'connection',
      asked: true,
    });
  }
  throw new HttpError(what, status);
}

/** Runs a call that changes nothing up to three times: a passing fault costs a second, not an attempt. */
export async function steadily<T>(call: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await call();
    } catch (error) {
      if (signal.aborted || tries === 3 || !passing(error)) throw error;
      await sleep(tries * 300 + Math.random() * 300, undefined, { signal });
    }
  }
}

/** A fault that the next try may not meet: no answer, 5xx, or one that breaks off in a way that undici takes for nonsense. */
export function passing(error: unknown): boolean {
  if (error instanceof HttpError) return error.status >= 500;
  if (error instanceof Error && ['TimeoutError', 'HTTPParserError'].includes(error.name)) return true;
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' && /^(E[A-Z]+$|UND_ERR)/.test(code);
}

/** The end of its line is the end of the body, and so is whatever breaks that (RFC 9112, section 6.3). */
export function isUnbounded(headers: Dispatcher.ResponseData['headers']): boolean {
  const { 'content-length': length, 'transfer-encoding': encoding } = headers;
  const declared = typeof length === 'string' && /^\d+$/.test(length);
  return !declared && !String(encoding ?? '').includes('chunked');
}

/** An answer that is no success is only read on so that its line can serve again. */
const mostRead = (status: number) => (isSuccess(status) ? 64 * 2 ** 20 : 64 * 1024);
const isSuccess = (status: number) => status >= 200 && status < 300;

/** GETs a JSON answer of at most 64 MiB, given as text. */
export async function getText(
  url: string,
  options: { what: string; headers: Record<string, string>; dispatcher: Dispatcher; signal: AbortSignal },
): Promise<{
  text: string;
  contentType: string;
  date: number | undefined;
  /** A text that was cut could not be told: neither a length nor a chunked end. */
  unbounded: boolean;
}> {
  const { what, dispatcher, signal } = options;
  const { origin, pathname, search } = new URL(url);
  return steadily(async () => {
    const { status, headers, text, cut } = await exchange({
      dispatcher,
      method: 'GET',
      origin,
      path: pathname + search,
      headers: { 'accept-encoding': 'identity', ...options.headers },
      limit: mostRead,
      timeoutMs: 60_000,
      signal,
    });
    if (!isSuccess(status)) throwFor(what, status, headers);
    if (cut) throw new Error(`${what}: the answer is larger than ${mostRead(status) / 2 ** 20} MiB`);
    const date = Date.parse(headers.date ?? '');
    return {
      text,
      contentType: headers['content-type'] ?? '',
      date: Number.isNaN(date) ? undefined : date,
      unbounded: isUnbounded(headers),
    };
  }, signal);
}
