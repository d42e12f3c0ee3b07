import { Agent as PlainAgent } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { Readable } from 'node:stream';
import { S3Client } from '@aws-sdk/client-s3';
import { Agent } from 'undici';
import type { Memory } from './proof.ts';

export interface S3Options {
  bucket: string;
  /** Without slashes at its ends; may be empty. */
  prefix: string;
  endpoint?: string | undefined;
  region?: string | undefined;
  forcePathStyle: boolean;
  checksums: 'auto' | 'crc32' | 'crc64nvme' | 'md5-etag' | 'none';
  storageClass?: string | undefined;
  sse?: string | undefined;
  sseKmsKeyId?: string | undefined;
  /** Proxies on the way to it; empty ones are none. */
  proxies?: { http: string; https: string; no: string } | undefined;
  /** Sockets to the store, and as many for a few bytes at hand. */
  connections: number;
  memory?: Memory | undefined;
}

/** What a proof that was found holds for: another bucket, store or encryption may have others. */
export function placeOf(options: S3Options): string {
  const { bucket, endpoint, region, sse, sseKmsKeyId } = options;
  return [`s3://${bucket}`, endpoint ?? 'AWS', region, sse, sseKmsKeyId].filter(Boolean).join(' ');
}

/** Checksums that follow a body, and that the store compares before it keeps it. */
export const trailers: Record<string, Trailer | undefined> = { crc32: 'CRC32', crc64nvme: 'CRC64NVME' };
export type Trailer = 'CRC32' | 'CRC64NVME';
/** With a checksum behind it a body goes in chunks of at least so many bytes (S3 API, "Signature calculations: trailing headers"). */
export const leastChunk = 8 * 2 ** 10;

/** Node takes a name in NO_PROXY for that host alone; everyone else, and the way to the library, for all below it, too. */
const withNamesBelow = (no: string | undefined) =>
  no
    ?.split(/[\s,]+/)
    .filter(Boolean)
    .flatMap((name) => (/^[.*]|^[\d.:/[\]-]+$/.test(name) ? [name] : [name, `.${name}`]))
    .join(',');

/** The sockets to a store, for the SDK's requests and our own. */
export type Agents = ReturnType<typeof agentsTo>;
/** So long a connection may take. */
export const connectMs = 10_000;
/** So long a line may be silent. */
export const silenceMs = 120_000;

export function agentsTo({ connections, proxies }: Pick<S3Options, 'connections' | 'proxies'>) {
  const settings = {
    maxSockets: connections,
    keepAlive: true,
    ...(proxies && {
      proxyEnv: { HTTP_PROXY: proxies.http, HTTPS_PROXY: proxies.https, NO_PROXY: withNamesBelow(proxies.no) },
    }),
  };
  return {
    http: new PlainAgent(settings),
    https: new SecureAgent(settings),
    /** For a few bytes at hand, at half of the cost; not through a proxy. */
    atHand: proxies
      ? undefined
      : new Agent({
          connections,
          connectTimeout: connectMs,
          headersTimeout: silenceMs,
          bodyTimeout: silenceMs,
          keepAliveTimeout: 10_000,
          allowH2: false,
        }),
  };
}

/** A client of the SDK's as this room wants it. */
export function connect(options: Pick<S3Options, 'endpoint' | 'region' | 'forcePathStyle'>, agents: Agents): S3Client {
  const client = new S3Client({
    // With an endpoint of its own a store rarely has regions; without one the SDK looks where it always does.
    ...((options.region || options.endpoint) && { region: options.region ?? 'us-east-1' }),
    ...(options.endpoint && { endpoint: options.endpoint }),
    forcePathStyle: options.forcePathStyle,
    // Older stores refuse a streamed body with the trailing checksums that the SDK adds by itself.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // What it would warn of comes back as an error.
    logger: { debug() {}, info() {}, warn() {}, error() {} },
    requestHandler: {
      connectionTimeout: connectMs,
      socketTimeout: silenceMs,
      httpAgent: agents.http,
      httpsAgent: agents.https,
    },
    // With it, the SDK leaves these sockets, and the way through proxies, for a connection of its own.
    expectContinueHeader: false,
  });
  // What the SDK wraps around a body breaks with it, and would end the process: nobody listens to it but the socket.
  client.middlewareStack.add(
    (next) => (call) => {
      const { body } = (call.request ?? {}) as { body?: unknown };
      if (body instanceof Readable) body.on('error', () => {});
      return next(call);
    },
    { step: 'finalizeRequest', priority: 'low' },
  );
  return client;
}

/** How the SDK is told to break a call off. */
export const stoppedBy = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});

/** As the records have it (RFC 9110, section 8.8.3, without the quotes). */
export const unquoted = (etag: string | undefined) => etag?.replace(/^"|"$/g, '');
