import { Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '../floor/log.ts';
import type { FileKind, FileQuery } from '../operations/assets/asset-files.ts';
import type { ZipQuery } from '../operations/assets/asset-zip.ts';
import type { Operations } from '../operations/operations.ts';
import { Refused } from '../operations/refused.ts';

/** How long a browser may reuse a redirect: its link expires after five minutes. */
const cachedLinkSeconds = 60;
/** Files that one process sends at once. */
const mostFiles = 100;

interface Range {
  first: number;
  last: number;
}

/** Sends files of assets, or redirects to the store. */
export class FileSender {
  readonly #operations: Operations;
  readonly #log: Log;
  readonly #bodies = new Set<Readable>();

  constructor({ operations, log }: { operations: Operations; log: Log }) {
    this.#operations = operations;
    this.#log = log;
  }

  async send(
    { id, kind, query }: { id: string; kind: FileKind; query: FileQuery },
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const isHead = request.method === 'HEAD';
    const clientGone = whenGone(reply);
    const options = { ...query, direct: isHead, signal: clientGone };
    const file = await this.#operations.assetFile(id, kind, options);
    reply.headers({
      'cache-control': 'private, no-cache',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
    });
    if (file.link !== undefined) {
      return reply.header('cache-control', `private, max-age=${cachedLinkSeconds}`).redirect(file.link, 302);
    }
    const { bytes } = file;
    const etag = `"${file.etag}"`;
    if (request.headers['if-none-match']?.split(/,\s*/).includes(etag)) return reply.code(304).send();
    const range = isHead ? undefined : rangeOf(request, bytes, etag);
    if (range === 'unsatisfiable') {
      reply.header('content-range', `bytes */${bytes}`);
      throw new Refused(416, 'range_not_in_file', `The file has ${bytes} bytes, and the range begins after them.`);
    }
    const { first, last } = range ?? { first: 0, last: bytes - 1 };
    const length = last - first + 1;
    const body = isHead || length === 0 ? Readable.from([]) : await this.#open(file.open, { first, last }, clientGone);
    if (range) reply.code(206).header('content-range', `bytes ${first}-${last}/${bytes}`);
    reply.headers({
      'accept-ranges': 'bytes',
      'content-disposition': file.contentDisposition,
      'content-length': length,
      'content-type': file.contentType,
      'cross-origin-resource-policy': 'same-origin',
      etag,
      // An uploaded file must not act as a page of ours. PDF viewers of browsers have a sandbox, and fail in this one.
      ...(file.contentType !== 'application/pdf' && { 'content-security-policy': "default-src 'none'; sandbox" }),
    });
    return reply.send(body);
  }

  /** Sends a ZIP archive. If a file is missing or damaged, the connection ends before the archive does. */
  async sendZip(query: ZipQuery, reply: FastifyReply): Promise<FastifyReply> {
    const clientGone = whenGone(reply);
    this.#requireFree();
    const zip = await this.#operations.assetZip(query, clientGone);
    this.#bodies.add(zip);
    zip.once('close', () => this.#bodies.delete(zip));
    zip.once('error', (err) => {
      if (!clientGone.aborted) this.#log.warn({ event: 'file.not_sent', err }, 'file not sent completely');
    });
    const name = `assets-${new Date().toISOString().slice(0, 10)}.zip`;
    reply.headers({
      'cache-control': 'private, no-store',
      'content-disposition': `attachment; filename="${name}"`,
      'content-type': 'application/zip',
      'x-content-type-options': 'nosniff',
    });
    return reply.send(zip);
  }

  #requireFree(): void {
    if (this.#bodies.size >= mostFiles) {
      throw new Refused(503, 'too_many_streams', `This process sends ${mostFiles} files. Try again later.`);
    }
  }

  async #open(open: (range: Range) => Promise<Readable>, range: Range, clientGone: AbortSignal): Promise<Readable> {
    this.#requireFree();
    const body = exactly(range.last - range.first + 1);
    this.#bodies.add(body);
    try {
      const source = await open(range);
      pipeline(source, body)
        .catch((err) => {
          if (!clientGone.aborted && err?.code !== 'ERR_STREAM_PREMATURE_CLOSE')
            this.#log.warn({ event: 'file.not_sent', err }, 'file not sent completely');
        })
        .finally(() => this.#bodies.delete(body));
      return body;
    } catch (error) {
      this.#bodies.delete(body);
      throw error;
    }
  }

  /** Ends all answers: a player asks for the rest again. */
  close(): void {
    for (const body of this.#bodies) body.destroy();
  }
}

/** Aborted when the client has closed the connection: a player that seeks does so. */
function whenGone({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  const abort = () => gone.abort(new Error('the client is gone'));
  if (raw.destroyed) abort();
  else raw.once('close', abort);
  return gone.signal;
}

/** Fails if another number of bytes passes: that must not look like a complete answer. */
function exactly(bytes: number): Transform {
  let left = bytes;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      done(left < 0 ? new Error(`the file is longer than ${bytes} bytes`) : null, chunk);
    },
    flush: (done) => done(left > 0 ? new Error(`the file ended ${left} bytes early`) : null),
  });
}

/** The range that is asked for (RFC 9110, section 14.1.2). Several are answered with the whole file. */
function rangeOf({ headers }: FastifyRequest, bytes: number, etag: string): Range | 'unsatisfiable' | undefined {
  const { range = '', 'if-range': ifRange } = headers;
  if (ifRange !== undefined && ifRange !== etag) return undefined;
  const [, from = '', to = ''] = /^bytes=(\d*)-(\d*)$/.exec(range) ?? [];
  if (from === '' && to === '') return undefined;
  const first = from === '' ? Math.max(0, bytes - Number(to)) : Number(from);
  const last = from === '' || to === '' ? bytes - 1 : Math.min(Number(to), bytes - 1);
  if (from !== '' && to !== '' && Number(from) > Number(to)) return undefined;
  return first <= last ? { first, last } : 'unsatisfiable';
}
