import { hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import {
  PutObjectCommand,
  type PutObjectCommandInput,
  type PutObjectCommandOutput,
  type S3Client,
  UploadPartCommand,
  type UploadPartCommandInput,
} from '@aws-sdk/client-s3';
import { exchange } from '../exchange.ts';
import { span } from '../tracing/tracing.ts';
import { lengthWithTrailer, mostSaid, type PutAnswer, putRequest } from './put-request.ts';
import type { Agents } from './s3-client.ts';
import { sign, uriEncode } from './sigv4.ts';

/** What is read of an answer, by the SDK's names. */
export type Answer = Partial<
  Pick<PutObjectCommandOutput, 'ETag' | 'ChecksumCRC32' | 'ChecksumCRC64NVME' | 'VersionId'>
>;
/** What a PUT of an object is made of, or of a part: that has a number. */
type Input = PutObjectCommandInput & Partial<Pick<UploadPartCommandInput, 'PartNumber' | 'UploadId'>>;
interface Options {
  abortSignal?: AbortSignal;
  /** CRC-32 of the body, lower-case hex. Asked when all of it has passed. */
  crc32: () => string;
  /** See Put. */
  proven?: boolean;
}
export type Send = (input: Input, options: Options) => Promise<Answer>;

/** Inputs of a command by their headers. */
const headerOf = {
  ContentType: 'content-type',
  ContentDisposition: 'content-disposition',
  StorageClass: 'x-amz-storage-class',
  ServerSideEncryption: 'x-amz-server-side-encryption',
  SSEKMSKeyId: 'x-amz-server-side-encryption-aws-kms-key-id',
} as const;
const handled = new Set([
  ...Object.keys(headerOf),
  ...['Bucket', 'Key', 'Metadata', 'Body', 'ContentLength', 'ChecksumAlgorithm', 'PartNumber', 'UploadId'],
]);

/** Records are smaller. What is larger may be long on its way, and is watched while it moves. */
const mostAtHand = 2 ** 16;

/** A clock that differs by more is corrected, as by the SDK; S3 refuses a difference of 15 minutes. */
const skewMs = 5 * 60_000;

/**
 * PutObject and UploadPart of the client, for what carries the bytes, at a part of its cost: the SDK says where a bucket is
 * and what the credentials are, and the request is signed and sent here. What has more to it the SDK sends. Bytes at hand that
 * were not taken, for whatever reason, it sends again, as often as is its habit, and its word counts. A stream goes once.
 */
export function sender(client: S3Client, agents: Agents): Send {
  const places = new Map<string, Promise<Place | undefined>>();
  function placeOf(bucket: string): Promise<Place | undefined> {
    let place = places.get(bucket);
    if (!place) {
      place = locate(client, bucket);
      places.set(bucket, place);
      place.catch(() => places.delete(bucket));
    }
    return place;
  }

  return async (input, options) => {
    const isPart = input.PartNumber !== undefined;
    const signal = options.abortSignal;
    const bySdk = () => {
      const command = isPart ? new UploadPartCommand(input as UploadPartCommandInput) : new PutObjectCommand(input);
      return client.send(command as PutObjectCommand, signal ? { abortSignal: signal } : {});
    };
    const simple =
      Object.keys(input).every((name) => handled.has(name)) &&
      (input.ChecksumAlgorithm === undefined || input.ChecksumAlgorithm === 'CRC32');
    const place = simple ? await placeOf(input.Bucket!) : undefined;
    if (!place) return bySdk();
    const { Body } = input;
    const atHand = typeof Body === 'string' ? Buffer.from(Body) : Buffer.isBuffer(Body) ? Body : undefined;
    const name = isPart ? 'S3.UploadPart' : 'S3.PutObject';
    try {
      return await span(name, { 'aws.s3.bucket': input.Bucket, 'aws.s3.key': input.Key }, () =>
        put(place, input, atHand, options),
      );
    } catch (error) {
      if (!atHand || signal?.aborted) throw error;
      return bySdk();
    }
  };

  async function put(place: Place, input: Input, atHand: Buffer | undefined, options: Options): Promise<Answer> {
    const bytes = atHand?.length ?? input.ContentLength!;
    const sum = input.ChecksumAlgorithm && (() => Buffer.from(options.crc32(), 'hex').toString('base64'));
    const headers: Record<string, string> = {
      host: place.host,
      ...headersOf(input),
      ...bodyHeaders(atHand, bytes, sum),
    };
    const path = place.path + input.Key!.split('/').map(uriEncode).join('/');
    const { PartNumber, UploadId } = input;
    const query = PartNumber === undefined ? '' : `partNumber=${PartNumber}&uploadId=${uriEncode(UploadId!)}`;
    const credentials = await client.config.credentials();
    const now = new Date(Date.now() + client.config.systemClockOffset);
    sign({ path, query, headers, credentials, region: place.region, now });
    headers['user-agent'] = place.userAgent;
    const target = query ? `${path}?${query}` : path;
    const { abortSignal: signal, proven } = options;
    const answer =
      agents.atHand && atHand && bytes <= mostAtHand
        ? await exchange({
            dispatcher: agents.atHand,
            method: 'PUT',
            origin: place.origin,
            path: target,
            headers,
            body: atHand,
            limit: () => mostSaid,
            signal,
          })
        : await putRequest({
            ...place,
            agent: place.secure ? agents.https : agents.http,
            path: target,
            headers,
            body: atHand ?? (input.Body as Readable),
            bytes,
            trailer: atHand ? undefined : sum,
            proven,
            signal,
          });
    if (answer.status >= 200 && answer.status < 300) return answerOf(answer);
    const theirs = Date.parse(answer.headers.date ?? '');
    if (Math.abs(theirs - now.getTime()) > skewMs) client.config.systemClockOffset = theirs - Date.now();
    throw refusal(answer, !atHand && sum !== undefined);
  }
}

function headersOf(input: Input): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, header] of Object.entries(headerOf)) {
    const value = input[name as keyof typeof headerOf];
    if (value !== undefined) headers[header] = value;
  }
  for (const [name, value] of Object.entries(input.Metadata ?? {})) headers[`x-amz-meta-${name.toLowerCase()}`] = value;
  return headers;
}

/** How long a body is, and what it can be held to: bytes at hand to their SHA-256, a stream to the checksum behind it. */
function bodyHeaders(
  atHand: Buffer | undefined,
  bytes: number,
  sum: (() => string) | undefined,
): Record<string, string> {
  if (atHand) {
    return {
      'content-length': String(bytes),
      'x-amz-content-sha256': hash('sha256', atHand),
      ...(sum && { 'x-amz-checksum-crc32': sum() }),
    };
  }
  if (!sum) return { 'content-length': String(bytes), 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
  return {
    'content-length': String(lengthWithTrailer(bytes)),
    'x-amz-decoded-content-length': String(bytes),
    'content-encoding': 'aws-chunked',
    'x-amz-content-sha256': 'STREAMING-UNSIGNED-PAYLOAD-TRAILER',
    'x-amz-trailer': 'x-amz-checksum-crc32',
  };
}

/** Where a bucket is, and what is signed for it. */
interface Place {
  origin: string;
  secure: boolean;
  hostname: string;
  port: number | undefined;
  host: string;
  /** What stands before the key. */
  path: string;
  region: string;
  userAgent: string;
}

/** Taken from what the SDK would send; undefined when that is signed in another way than is known here. */
async function locate(client: S3Client, bucket: string): Promise<Place | undefined> {
  const command = new PutObjectCommand({ Bucket: bucket, Key: 'k', Body: '' });
  let made: { protocol: string; hostname: string; port?: number; path: string; headers: Record<string, string> };
  command.middlewareStack.add(
    () =>
      async ({ request }) => {
        made = request as typeof made;
        return { response: undefined, output: { $metadata: {} } };
      },
    { step: 'finalizeRequest', priority: 'low' },
  );
  await client.send(command);
  const { protocol, hostname, port, path, headers } = made!;
  const scope = /^AWS4-HMAC-SHA256 Credential=[^,]*\/\d{8}\/([^/,]+)\/s3\/aws4_request,/;
  const region = scope.exec(headers.authorization ?? '')?.[1];
  if (!region || !path.endsWith('/k')) return undefined;
  return {
    origin: `${protocol}//${hostname}${port === undefined ? '' : `:${port}`}`,
    secure: protocol === 'https:',
    hostname: hostname.replace(/^\[|\]$/g, ''),
    port,
    host: headers.host!,
    path: path.slice(0, -1),
    region,
    userAgent: headers['user-agent'] ?? '',
  };
}

function answerOf({ headers }: PutAnswer): Answer {
  const one = (name: string) => headers[name] as string | undefined;
  return { ETag: headers.etag, ChecksumCRC32: one('x-amz-checksum-crc32'), VersionId: one('x-amz-version-id') };
}

/** An answer that is no success, as the SDK throws it. */
function refusal({ status, text }: PutAnswer, withTrailer: boolean): Error {
  const tagged = (name: string) => new RegExp(`<${name}>([^<]*)</${name}>`).exec(text)?.[1];
  const said = tagged('Code');
  // A store that knows of no trailer takes the word for it in place of a SHA-256 for a SHA-256.
  const code = withTrailer && said === 'XAmzContentSHA256Mismatch' ? 'TrailerUnknown' : said;
  const error = new Error(tagged('Message') || code || 'UnknownError');
  return Object.assign(error, { name: code || 'UnknownError', Code: code, $metadata: { httpStatusCode: status } });
}
