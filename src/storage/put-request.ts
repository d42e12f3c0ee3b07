import type { Agent, IncomingHttpHeaders } from 'node:http';
import { type ClientRequest, request as plainRequest } from 'node:http';
import { request as secureRequest } from 'node:https';
import type { Readable } from 'node:stream';
import { handBack } from '../buffers.ts';
import { connectMs, silenceMs } from './s3-client.ts';

/** From so many bytes on a store is asked whether it wants them before they flow, as by the SDK (RFC 9110, section 10.1.1). */
const askFrom = 2 * 2 ** 20;
/** A store that does not answer that is sent them. */
const askMs = 1000;

/** So much of an answer is kept, in bytes. */
export const mostSaid = 64 * 1024;

export interface Put {
  agent: Agent;
  secure: boolean;
  hostname: string;
  port: number | undefined;
  path: string;
  /** All but `expect`. */
  headers: Record<string, string>;
  body: Buffer | Readable;
  bytes: number;
  /** Of a stream: its CRC-32 in base64, to be sent behind it. Asked when all of it has passed. */
  trailer?: (() => string) | undefined;
  /** What the store has will be compared with a sum that was made before: only then is a stream's memory handed back. */
  proven?: boolean | undefined;
  signal: AbortSignal | undefined;
}

export interface PutAnswer {
  status: number;
  headers: IncomingHttpHeaders;
  /** The beginning of it. */
  text: string;
}

/**
 * One PUT, and the answer to it, whatever that says. Nothing is tried twice. An answer that comes before the body has flowed
 * ends it, and its line.
 */
export function putRequest(put: Put): Promise<PutAnswer> {
  const { agent, secure, hostname, port, path, headers, body, bytes, trailer, proven, signal } = put;
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const asks = bytes >= askFrom;
    const call = (secure ? secureRequest : plainRequest)({
      agent,
      method: 'PUT',
      host: hostname,
      ...(port !== undefined && { port }),
      path,
      headers: asks ? { ...headers, expect: '100-continue' } : headers,
      timeout: silenceMs,
    });
    let connecting: NodeJS.Timeout | undefined;
    let asking: NodeJS.Timeout | undefined;
    const settle = () => {
      clearTimeout(connecting);
      clearTimeout(asking);
      signal?.removeEventListener('abort', stop);
    };
    const fail = (error: unknown) => {
      settle();
      call.destroy();
      reject(error);
    };
    const stop = () => fail(signal!.reason);
    signal?.addEventListener('abort', stop, { once: true });
    const late = () =>
      fail(Object.assign(new Error(`no connection within ${connectMs / 1000} s`), { code: 'ETIMEDOUT' }));
    // To wait for a socket that others have is none of the store's doing. Through a proxy there is none before its tunnel stands.
    const waits = Object.values(agent.requests).some((calls) => calls?.includes(call as never));
    if (!waits) connecting = setTimeout(late, connectMs);
    call.on('socket', (socket) => {
      if (!socket.connecting) return clearTimeout(connecting);
      connecting ??= setTimeout(late, connectMs);
      socket.once('connect', () => clearTimeout(connecting));
    });
    call.on('timeout', () => {
      fail(Object.assign(new Error(`nothing moved for ${silenceMs / 1000} s`), { name: 'TimeoutError' }));
    });
    call.on('error', fail);
    call.on('response', (response) => {
      clearTimeout(asking);
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk) => {
        if (text.length < mostSaid) text += chunk;
      });
      response.on('error', fail);
      response.on('end', () => {
        settle();
        if (!call.writableFinished) call.destroy();
        resolve({ status: response.statusCode!, headers: response.headers, text });
      });
    });
    const flow = () => (body instanceof Uint8Array ? call.end(body) : pour(body, call, { bytes, trailer, proven }));
    if (!asks) {
      flow();
      return;
    }
    const flowOnce = () => {
      if (asking) flow();
      clearTimeout(asking);
      asking = undefined;
    };
    asking = setTimeout(flowOnce, askMs);
    call.on('continue', flowOnce);
    call.flushHeaders();
  });
}

/** Stores may hold a chunk in memory, and some take none of more than 16 MiB. */
const chunkBytes = 2 ** 20;
const head = (bytes: number) => `${bytes.toString(16)}\r\n`;
const tail = (sum: string) => `0\r\nx-amz-checksum-crc32:${sum}\r\n\r\n`;

/** How long a body is when its checksum goes behind it: in chunks (S3 API, "Signature calculations: trailing headers"). */
export function lengthWithTrailer(bytes: number): number {
  const chunk = (length: number) => (length > 0 ? head(length).length + length + 2 : 0);
  return Math.floor(bytes / chunkBytes) * chunk(chunkBytes) + chunk(bytes % chunkBytes) + tail('AAAAAA==').length;
}

/** What comes in one turn of the event loop is written in one call of the system, if it is not more than this. */
const batchBytes = 2 ** 18;

/** All of a body into a request, no faster than that takes it. One that breaks leaves the request as it is. */
function pour(
  body: Readable,
  into: ClientRequest,
  { bytes, trailer, proven }: Pick<Put, 'bytes' | 'trailer' | 'proven'>,
): void {
  let left = bytes;
  // Of the chunk that is under way.
  let room = trailer ? 0 : Number.POSITIVE_INFINITY;
  let batch = 0;
  let goOn = true;
  const flush = () => {
    batch = 0;
    into.uncork();
    if (goOn) return;
    goOn = true;
    body.pause();
    into.once('drain', () => body.resume());
  };
  body.on('data', (piece: Buffer) => {
    if (batch === 0) {
      into.cork();
      setImmediate(() => batch > 0 && flush());
    }
    batch += piece.length;
    for (let rest = piece; rest.length > 0; ) {
      if (room === 0) {
        room = Math.min(chunkBytes, left);
        into.write(head(room));
      }
      const some = rest.length > room ? rest.subarray(0, room) : rest;
      rest = rest.subarray(some.length);
      goOn = into.write(some, rest.length === 0 && proven ? (error) => error || handBack(piece) : undefined);
      room -= some.length;
      left -= some.length;
      if (room === 0) into.write('\r\n');
    }
    if (batch >= batchBytes) flush();
  });
  body.on('end', () => {
    batch = 0;
    into.end(trailer && tail(trailer()));
  });
}
