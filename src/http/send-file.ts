import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import parseRange from 'range-parser';
import type { AssetFile } from '../operations/asset-files.ts';

/** A link is valid for five minutes; this way, a cached one is not used after that. */
const cachedLinkSeconds = 60;

/**
 * Sends a file of an asset, or redirects to the store. What users have uploaded must not act as a page of ours: the sandbox
 * takes away scripts, forms and this origin.
 */
export async function sendFile(request: FastifyRequest, reply: FastifyReply, file: AssetFile): Promise<FastifyReply> {
  reply.headers({ 'referrer-policy': 'no-referrer', 'x-content-type-options': 'nosniff' });
  if (file.link !== undefined) {
    return reply.header('cache-control', `private, max-age=${cachedLinkSeconds}`).redirect(file.link, 302);
  }
  const { bytes, contentType, contentDisposition } = file;
  const etag = `"${file.etag}"`;
  reply.headers({
    'accept-ranges': 'bytes',
    'cache-control': 'private, no-cache',
    'content-disposition': contentDisposition,
    'content-security-policy': "default-src 'none'; sandbox",
    'content-type': contentType,
    'cross-origin-resource-policy': 'same-origin',
    etag,
  });
  if (request.headers['if-none-match']?.split(/,\s*/).includes(etag)) return reply.code(304).send();
  const range = rangeOf(request, bytes, etag);
  if (range === 'unsatisfiable') return reply.code(416).header('content-range', `bytes */${bytes}`).send();
  if (range) reply.code(206).header('content-range', `bytes ${range.first}-${range.last}/${bytes}`);
  reply.header('content-length', range ? range.last - range.first + 1 : bytes);
  if (request.method === 'HEAD') return reply.send(Readable.from([]));
  return reply.send((await file.open(range)) ?? Readable.from([]));
}

/** The range that is asked for. Several are answered with the whole file (RFC 9110, section 14.2). */
function rangeOf({ headers }: FastifyRequest, bytes: number, etag: string) {
  const { range, 'if-range': ifRange } = headers;
  if (range === undefined || (ifRange !== undefined && ifRange !== etag)) return undefined;
  const found = parseRange(bytes, range);
  if (found === -1) return 'unsatisfiable';
  const [only, ...others] = found === -2 || found.type !== 'bytes' ? [] : found;
  return only && others.length === 0 ? { first: only.start, last: only.end } : undefined;
}
