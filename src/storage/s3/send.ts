import { hash } from 'node:crypto';
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PutObjectCommandInput, S3Client } from '@aws-sdk/client-s3';
import { version } from '../../floor/version.ts';
import { span } from '../../tracing/tracing.ts';
import type { Meter } from '../meter.ts';
import { type Agents, locate, type S3Options, silenceMs } from './client.ts';
import { statusOf } from './errors.ts';

/** The store's answer about a stored object or part. */
export interface PutAnswer {
  etag: string | undefined;
  /** Checksums that the store has computed, base64. */
  sums: Partial<Record<Algorithm, string | undefined>>;
  versionId: string | undefined;
}

/** One PUT of an object, or of a part of an upload. The inputs have the SDK's names. */
export interface PutRequest {
  target: Omit<PutObjectCommandInput, 'Body'> & { Bucket: string; Key: string };
  part?: { uploadId: string; number: number } | undefined;
  /** A stream has passed through a meter and has exactly `bytes`. */
  body: Buffer | Meter;
  bytes: number;
  /** Sent after a stream, or before bytes in memory; the store compares it. For a stream it is computed when the body has been sent. */
  checksum?: Checksum | undefined;
  signal?: AbortSignal | undefined;
}
/** A checksum that stores compare, with its length in base64. */
const sumLength = { sha256: 44, crc32: 8 };
export type Algorithm = keyof typeof sumLength;
export interface Checksum {
  algorithm: Algorithm;
  base64(): string;
}
export type Send = (put: PutRequest) => Promise<PutAnswer>;

const headerOf = {
  ContentType: 'content-type',
  ContentDisposition: 'content-disposition',
  StorageClass: 'x-amz-storage-class',
  ObjectLockMode: 'x-amz-object-lock-mode',
  ObjectLockRetainUntilDate: 'x-amz-object-lock-retain-until-date',
  ServerSideEncryption: 'x-amz-server-side-encryption',
  SSEKMSKeyId: 'x-amz-server-side-encryption-aws-kms-key-id',
} as const;

/** A stream of at least this length is sent only after the store's `100 Continue`, as the SDK does (RFC 9110, section 10.1.1). */
const askFrom = 2 * 2 ** 20;
/** If the store does not answer `100 Continue`, the body is sent after this time. */
const askMs = 1000;
/** How much of an answer is read, in bytes. */
const answerBytes = 64 * 1024;
/** Bytes in memory are sent up to three times. A stream is sent once: its source decides what to do. */
const tries = 3;

/**
 * Sends the bodies of objects and parts. The SDK costs several times as much for these, and needs a retry-safe body; it
 * provides the address of the bucket and the credentials. An error has the form of the SDK's: `name` is the store's code.
 */
export function createSender(
  client: S3Client,
  agents: Agents,
  options: Pick<S3Options, 'bucket' | 'endpoint' | 'region' | 'forcePathStyle'>,
): Send {
  let target: ReturnType<typeof findTarget> | undefined;
  async function findTarget() {
    const { url, region } = await locate(options, options.bucket, client.config.credentials);
    const signer = await client.config.signer({
      name: 'sigv4',
      signingName: 's3',
      signingRegion: region,
      properties: {},
    });
    return { url, signer };
  }

  async function attempt(put: PutRequest): Promise<PutAnswer> {
    const { body, part } = put;
    target ??= findTarget().catch((error) => {
      target = undefined;
      throw error;
    });
    const { url, signer } = await target;
    const path = `${url.pathname}${put.target.Key.split('/').map(uriEncode).join('/')}`;
    const query = part ? { partNumber: String(part.number), uploadId: part.uploadId } : {};
    const headers = { host: url.host, ...headersOf(put.target), ...bodyHeaders(put) };
    const { protocol, hostname } = url;
    const signed = await signer.sign({ method: 'PUT', protocol, hostname, path, query, headers });
    const secure = protocol === 'https:';
    const request = (secure ? requestHttps : requestHttp)({
      agent: secure ? agents.https : agents.http,
      method: 'PUT',
      hostname: hostname.replace(/^\[|\]$/g, ''),
      port: url.port,
      path: part ? `${path}?partNumber=${part.number}&uploadId=${uriEncode(part.uploadId)}` : path,
      headers: { ...signed.headers, 'user-agent': `asset-mirror/${version}` },
      timeout: silenceMs,
      ...(put.signal && { signal: put.signal }),
    });
    limitTimes(request, agents.connectMs);
    const answer = await transmit(request, put);
    const text = await beginningOf(answer);
    // The body may not have been sent to its end; then the connection cannot be used again.
    if (!request.writableFinished) request.destroy();
    const { statusCode = 0, headers: said } = answer;
    if (statusCode < 200 || statusCode > 299) {
      throw refusal(statusCode, text, !Buffer.isBuffer(body) && put.checksum !== undefined);
    }
    return {
      etag: said.etag,
      sums: {
        sha256: one(said['x-amz-checksum-sha256']),
        crc32: one(said['x-amz-checksum-crc32']),
      },
      versionId: one(said['x-amz-version-id']),
    };
  }

  return (put) => {
    const name = put.part ? 'S3.UploadPart' : 'S3.PutObject';
    return span(name, { 'aws.s3.bucket': put.target.Bucket, 'aws.s3.key': put.target.Key }, async () => {
      for (let tried = 1; ; tried++) {
        try {
          return await attempt(put);
        } catch (error) {
          put.signal?.throwIfAborted();
          if (!Buffer.isBuffer(put.body) || tried === tries || (statusOf(error) ?? 500) < 500) throw error;
          await sleep(100 * 2 ** tried * Math.random(), undefined, { signal: put.signal });
        }
      }
    });
  };
}

function headersOf(target: PutRequest['target']): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, header] of Object.entries(headerOf)) {
    const value = target[name as keyof typeof headerOf];
    if (value !== undefined) headers[header] = value instanceof Date ? value.toISOString() : value;
  }
  for (const [name, value] of Object.entries(target.Metadata ?? {}))
    headers[`x-amz-meta-${name.toLowerCase()}`] = value;
  return headers;
}

/** The length of a body and what proves it: bytes in memory have their SHA-256, a stream has its checksum after it. */
function bodyHeaders({ body, bytes, checksum }: PutRequest): Record<string, string> {
  if (Buffer.isBuffer(body)) {
    return {
      'content-length': String(bytes),
      'x-amz-content-sha256': hash('sha256', body),
      ...(checksum && { [`x-amz-checksum-${checksum.algorithm}`]: checksum.base64() }),
    };
  }
  if (!checksum) return { 'content-length': String(bytes), 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
  return {
    'content-length': String(lengthWithTrailer(bytes, checksum)),
    'x-amz-decoded-content-length': String(bytes),
    'content-encoding': 'aws-chunked',
    'x-amz-content-sha256': 'STREAMING-UNSIGNED-PAYLOAD-TRAILER',
    'x-amz-trailer': `x-amz-checksum-${checksum.algorithm}`,
  };
}

/** Sends the body unless the store refuses it before, and returns the head of the answer, whatever that says. */
async function transmit(request: ClientRequest, { body, bytes, checksum }: PutRequest): Promise<IncomingMessage> {
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    request.once('response', resolve).on('error', reject);
  });
  answered.catch(() => {});
  if (Buffer.isBuffer(body)) {
    request.end(body);
    return answered;
  }
  if (bytes >= askFrom) {
    request.setHeader('expect', '100-continue');
    request.flushHeaders();
    const wanted = once(request, 'continue').then(() => undefined);
    const refused = await Promise.race([wanted, answered, sleep(askMs, undefined, { ref: false })]);
    if (refused) return refused;
  }
  const sent = checksum ? pipeline(body, withTrailer(bytes, checksum), request) : pipeline(body, request);
  return Promise.race([answered, sent.then(() => answered)]);
}

/** Time limits for opening a connection and for silence on it. Waiting for a free socket does not count. */
function limitTimes(request: ClientRequest, connectMs: number): void {
  const end = (name: string, message: string) => request.destroy(Object.assign(new Error(message), { name }));
  request.on('timeout', () => end('TimeoutError', `nothing moved for ${silenceMs / 1000} s`));
  request.on('socket', (socket) => {
    if (!socket.connecting) return;
    const late = setTimeout(() => end('ETIMEDOUT', `no connection within ${connectMs / 1000} s`), connectMs);
    const settle = () => clearTimeout(late);
    socket.once('connect', settle).once('close', settle);
  });
}

/** Stores may hold a chunk in memory, and some take none of more than 16 MiB. */
const chunkBytes = 2 ** 20;
const chunkHead = (bytes: number) => `${bytes.toString(16)}\r\n`;
const trailer = ({ algorithm }: Checksum, sum: string) => `0\r\nx-amz-checksum-${algorithm}:${sum}\r\n\r\n`;

/** A body in chunks with its checksum after it (S3 API, "Signature calculations: trailing headers"). */
function withTrailer(bytes: number, checksum: Checksum): Transform {
  let left = bytes;
  /** Bytes of the current chunk that are still missing. */
  let missing = 0;
  return new Transform({
    transform(piece: Buffer, _encoding, done) {
      for (let rest = piece; rest.length > 0; ) {
        if (missing === 0) {
          missing = Math.min(chunkBytes, left);
          this.push(chunkHead(missing));
        }
        const some = rest.subarray(0, missing);
        this.push(some);
        rest = rest.subarray(some.length);
        missing -= some.length;
        left -= some.length;
        if (missing === 0) this.push('\r\n');
      }
      done();
    },
    flush(done) {
      done(null, trailer(checksum, checksum.base64()));
    },
  });
}

/** The length of what `withTrailer` makes. */
function lengthWithTrailer(bytes: number, checksum: Checksum): number {
  const chunk = (length: number) => (length > 0 ? chunkHead(length).length + length + 2 : 0);
  const sum = '='.repeat(sumLength[checksum.algorithm]);
  return Math.floor(bytes / chunkBytes) * chunk(chunkBytes) + chunk(bytes % chunkBytes) + trailer(checksum, sum).length;
}

async function beginningOf(answer: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) if (text.length < answerBytes) text += chunk;
  return text;
}

/** The error for an answer without success, as the SDK throws it. */
function refusal(status: number, text: string, withTrailer: boolean): Error {
  const tagged = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  const said = tagged('Code');
  // A store without support for trailers takes `STREAMING-UNSIGNED-PAYLOAD-TRAILER` for a SHA-256, which then differs.
  const code = (withTrailer && said === 'XAmzContentSHA256Mismatch' ? 'TrailerUnknown' : said) || 'UnknownError';
  const error = new Error(tagged('Message') || code);
  return Object.assign(error, { name: code, Code: code, $metadata: { httpStatusCode: status } });
}

const one = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value);

/** All but letters, digits and `-._~` (S3 API, "Signature calculations", UriEncode). */
const uriEncode = (text: string) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
