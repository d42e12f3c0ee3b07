import { Readable } from 'node:stream';
import { create as contentDisposition } from 'content-disposition';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Body, resized } from '../content/body.ts';
import { HttpError } from '../http-error.ts';
import { type Asset, isVideo, statusAt } from '../model.ts';
import type { Service } from '../service.ts';
import { checkLink, type Kind } from './links.ts';
import { parseRange } from './range.ts';

const ENDPOINT = { original: 'media', mp4: 'mp4', thumbnail: 'thumbnail' } as const;

type MediaRequest = FastifyRequest<{ Params: { assetId: string; hop?: string; left?: string } }>;

/** The signed links of sections 2.6 and 2.7. */
export function registerMedia(server: FastifyInstance, service: Service): void {
  for (const kind of ['original', 'mp4', 'thumbnail'] as const) {
    server.route({
      method: ['GET', 'HEAD'],
      url: `/media/:assetId/${kind}`,
      config: { endpoint: ENDPOINT[kind] },
      handler: async (request: MediaRequest, reply: FastifyReply) => serve(service, kind, request, reply),
    });
    server.route({
      method: ['GET', 'HEAD'],
      url: `/hop/:hop/:left/media/:assetId/${kind}`,
      handler: async (request: MediaRequest, reply: FastifyReply) => {
        const { hop, left } = request.params;
        if (left === '0') {
          request.fault = service.faults.redirected(hop!);
          request.entry.endpoint = ENDPOINT[kind];
          return serve(service, kind, request, reply);
        }
        const next = request.url.replace(`/hop/${hop}/${left}/`, `/hop/${hop}/${Number(left) - 1}/`);
        return reply.redirect(service.addresses.api + next, 302);
      },
    });
  }
}

function serve(service: Service, kind: Kind, request: MediaRequest, reply: FastifyReply): FastifyReply {
  const { assetId } = request.params;
  checkLink(service, assetId, kind, request.query as object, request.headers.referer);
  const asset = service.catalogue.find(assetId);
  const body = asset && bodyFor(asset, kind, service.clock.now());
  if (!body) throw new HttpError(404, 'not_found', 'This file does not exist.');
  if (kind !== 'thumbnail') reply.header('content-disposition', contentDisposition(filename(asset, kind)));
  const { shortBy = 0, longBy = 0 } = request.fault ?? {};
  return send(request, reply, shortBy || longBy ? resized(body, longBy - shortBy) : body);
}

function bodyFor(asset: Asset, kind: Kind, now: number): Body | undefined {
  if (kind === 'thumbnail') return asset.thumbnail?.();
  const status = statusAt(asset, now);
  if (status === 'unavailable' || (kind === 'mp4' && status !== 'ready')) return undefined;
  return kind === 'original' && asset.originalGone ? undefined : asset[kind]?.();
}

/** Headers have limited space, and cannot contain half of a surrogate pair. */
function filename(asset: Asset, kind: Kind): string {
  const name = [...asset.filename.toWellFormed()].slice(0, 255).join('');
  return kind === 'mp4' && isVideo(asset.mimeType) ? name.replace(/(\.\w+)?$/, '.mp4') : name;
}

function send(request: FastifyRequest, reply: FastifyReply, body: Body): FastifyReply {
  reply.headers({
    'accept-ranges': 'bytes',
    etag: body.etag,
    'cache-control': 'private, no-transform',
    // An uploaded HTML or SVG file may contain a script, which must not run on this origin.
    'content-security-policy': "default-src 'none'; sandbox",
    'content-type': body.type,
  });
  if (request.headers['if-none-match']?.split(/\s*,\s*/).includes(body.etag)) return reply.code(304).send();

  const { 'if-range': ifRange, range } = request.headers;
  const isSame = ifRange === undefined || ifRange === body.etag;
  const wanted = range !== undefined && isSame && !request.fault?.ignoreRange ? parseRange(range, body.size) : 'whole';
  if (wanted === 'unsatisfiable') {
    throw new HttpError(416, 'range_not_satisfiable', 'This range is beyond the end of the file.', {
      'content-range': `bytes */${body.size}`,
    });
  }
  const { start, end } = wanted === 'whole' ? { start: 0, end: body.size } : wanted;
  if (wanted !== 'whole') reply.code(206).header('content-range', `bytes ${start}-${end - 1}/${body.size}`);
  reply.header('content-length', end - start);
  if (request.method === 'HEAD') return reply.send();
  return reply.send(Readable.from(counted(body.chunks(start, end), end - start, request), { objectMode: false }));
}

/** Counts the bytes of a body. Chunks are made on demand: only one is in memory. */
async function* counted(
  chunks: Iterable<Buffer> | AsyncIterable<Buffer>,
  promised: number,
  request: FastifyRequest,
): AsyncGenerator<Buffer> {
  for await (const chunk of chunks) {
    request.entry.bytes += chunk.length;
    yield chunk;
  }
  // The file has shrunk. An error closes the connection; without it, the client would wait for more bytes.
  if (request.entry.bytes < promised) throw new Error(`${request.entry.path} has fewer bytes than promised.`);
}
