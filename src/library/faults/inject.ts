import { once } from 'node:events';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { constants, createBrotliCompress, createDeflate, createGzip, createZstdCompress } from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { expiredLink } from '../api/links.ts';
import type { Service } from '../service.ts';
import type { Fault } from './rules.ts';

const ENCODERS: Record<string, () => NodeJS.ReadWriteStream> = {
  gzip: createGzip,
  br: () => createBrotliCompress({ params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  deflate: createDeflate,
  zstd: createZstdCompress,
};

/** The effects before a request is handled: latency, expired links, redirects, other answers. Returns whether it answered. */
export async function answerWithFault(
  service: Service,
  request: FastifyRequest,
  reply: FastifyReply,
  fault: Fault,
): Promise<boolean> {
  if (fault.latency) await pause(fault.latency, undefined, { ref: false });
  const isLink = request.url.startsWith('/media/');
  if (isLink && fault.expireLinks) throw expiredLink();
  if (isLink && fault.redirect) {
    const id = service.faults.saveRedirected(fault);
    reply.redirect(`${service.addresses.api}/hop/${id}/${fault.redirect - 1}${request.url}`, 302);
    return true;
  }
  if (fault.status === undefined && fault.retryAfter === undefined && fault.body === undefined) return false;
  const status = fault.status ?? (fault.retryAfter === undefined ? 200 : 429);
  if (fault.retryAfter !== undefined) reply.header('retry-after', String(fault.retryAfter));
  const { body = { error: 'fault', message: `A fault rule set status ${status}.` } } = fault;
  if (typeof body === 'string') reply.code(status).type('text/plain; charset=utf-8').send(body);
  else reply.code(status).type('application/json; charset=utf-8').send(JSON.stringify(body));
  return true;
}

/** The effects on an answer before it is sent. */
export function alterAnswer(request: FastifyRequest, reply: FastifyReply, fault: Fault, payload: unknown): unknown {
  if (fault.dropAnswer) {
    request.raw.socket.destroy();
    if (payload instanceof Readable) payload.destroy();
    return '';
  }
  if (fault.headers) reply.headers(fault.headers);
  if (fault.wrongType) reply.header('content-type', 'text/html; charset=utf-8');
  if (payload === undefined || payload === null || request.method === 'HEAD') return payload;

  let body = payload;
  if (fault.contentEncoding !== undefined) {
    reply.header('content-encoding', fault.contentEncoding);
    const encoder = ENCODERS[fault.contentEncoding];
    if (encoder) {
      reply.removeHeader('content-length');
      body = asStream(body).pipe(encoder());
    }
  }
  if (fault.chunked) {
    reply.removeHeader('content-length');
    body = asStream(body);
  }
  if (fault.cutAfter === undefined && fault.stallAfter === undefined && !fault.bytesPerSecond) return body;
  if (!(body instanceof Readable)) reply.header('content-length', Buffer.byteLength(body as string));
  if (fault.cutAfter !== undefined || fault.stallAfter !== undefined) body = interrupted(asStream(body), fault, reply);
  if (fault.bytesPerSecond) {
    body = Readable.from(slowed(asStream(body), fault.bytesPerSecond), { objectMode: false });
  }
  return body;
}

async function* slowed(body: Readable, bytesPerSecond: number): AsyncGenerator<Buffer> {
  const most = Math.ceil(bytesPerSecond / 10);
  for await (const chunk of body as AsyncIterable<Buffer>) {
    for (let at = 0; at < chunk.length; at += most) {
      const piece = chunk.subarray(at, at + most);
      yield piece;
      await pause((piece.length / bytesPerSecond) * 1000, undefined, { ref: false });
    }
  }
}

/** The body up to where it is cut or stalls. */
function interrupted(body: Readable, fault: Fault, reply: FastifyReply): Readable {
  const { cutAfter = Infinity, stallAfter = Infinity } = fault;
  const stream = Readable.from(beginning(), { objectMode: false });
  return stream;

  async function* beginning(): AsyncGenerator<Buffer> {
    let left = Math.min(cutAfter, stallAfter);
    for await (const chunk of body as AsyncIterable<Buffer>) {
      if (chunk.length > left) {
        if (left > 0) yield chunk.subarray(0, left);
        if (stallAfter < cutAfter) await once(reply.raw, 'close');
        else await cut();
        return;
      }
      left -= chunk.length;
      yield chunk;
    }
  }

  /** Without a reset, the client gets every byte before the cut. Tests rely on it. */
  async function cut(): Promise<void> {
    const socket = reply.raw.socket!;
    reply.raw.flushHeaders();
    do await pause(1);
    while (!socket.destroyed && stream.readableLength + reply.raw.writableLength > 0);
    if (fault.reset) socket.resetAndDestroy();
    else socket.destroySoon();
  }
}

function asStream(payload: unknown): Readable {
  return payload instanceof Readable ? payload : Readable.from([Buffer.from(payload as string)], { objectMode: false });
}
