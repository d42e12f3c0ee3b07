import { Agent as PlainAgent } from 'node:http';
import { Agent as SecureAgent } from 'node:https';
import { HeadObjectCommand, S3Client } from '@aws-sdk/client-s3';

/** Remembers which checksums a store verifies, so that not every process has to find out. */
interface Memory {
  recall(store: string): Promise<string | undefined>;
  keep(store: string, checksum: string): Promise<void>;
}

export interface S3Options {
  bucket: string;
  /** Has no slashes at its ends; may be empty. */
  prefix: string;
  endpoint?: string | undefined;
  /** The store's address for browsers; `none`: they cannot reach it. Default: `endpoint`. */
  publicEndpoint?: string | undefined;
  region?: string | undefined;
  forcePathStyle: boolean;
  checksums: 'auto' | 'sha256' | 'crc32' | 'md5-etag' | 'none';
  storageClass?: string | undefined;
  /** How long media is locked after it is written. */
  objectLock?: { mode: 'GOVERNANCE' | 'COMPLIANCE'; ms: number } | undefined;
  /** Whether content hashes are computed. */
  contentHash?: boolean | undefined;
  sse?: string | undefined;
  sseKmsKeyId?: string | undefined;
  /** An empty string means no proxy. */
  proxies?: { http: string; https: string; no: string } | undefined;
  /** Sockets to the store. */
  connections: number;
  memory?: Memory | undefined;
  /** Larger objects are copied in parts; for tests. */
  largestCopy?: number | undefined;
}

/** The key under which a detected method is remembered: another bucket, store or encryption may support other methods. */
export function memoryKeyOf(options: S3Options): string {
  const { bucket, endpoint, region, sse, sseKmsKeyId } = options;
  return [`s3://${bucket}`, endpoint ?? 'AWS', region, sse, sseKmsKeyId].filter(Boolean).join(' ');
}

/**
 * The fields that the settings add to each write. Only media gets a class and a lock: other objects must be readable at once, and are
 * rewritten.
 */
export const writeSettings = ({ storageClass, objectLock, sse, sseKmsKeyId }: S3Options, isMedia: boolean) => ({
  ...(isMedia && storageClass && { StorageClass: storageClass as never }),
  ...(isMedia &&
    objectLock && {
      ObjectLockMode: objectLock.mode,
      ObjectLockRetainUntilDate: new Date(Date.now() + objectLock.ms),
    }),
  ...(sse && { ServerSideEncryption: sse as never }),
  ...(sseKmsKeyId && { SSEKMSKeyId: sseKmsKeyId }),
});

/** Node applies a name in NO_PROXY to that host only; other programs, and our requests to the library, also to its subdomains. */
const withSubdomains = (no: string | undefined) =>
  no
    ?.split(/[\s,]+/)
    .filter(Boolean)
    .flatMap((name) => (/^[.*]|^[\d.:/[\]-]+$/.test(name) ? [name] : [name, `.${name}`]))
    .join(',');

/** The sockets to a store, for the SDK's requests and our own. */
export type Agents = ReturnType<typeof agentsTo>;
/** Time limit for opening a connection. */
const connectMs = 10_000;
/** How long a connection may be silent during a request. */
export const silenceMs = 120_000;
/**
 * An idle connection is closed after this time, as undici does it, so that stores rarely close one first: a request that begins at
 * that moment fails, and the stream that it sends cannot be sent again.
 */
const idleMs = 4000;

export function agentsTo({ connections, proxies }: Pick<S3Options, 'connections' | 'proxies'>) {
  const settings = {
    maxSockets: connections,
    keepAlive: true,
    // For idle sockets only: each request sets its own timeout.
    timeout: idleMs,
    ...(proxies && {
      proxyEnv: { HTTP_PROXY: proxies.http, HTTPS_PROXY: proxies.https, NO_PROXY: withSubdomains(proxies.no) },
    }),
  };
  return {
    http: new PlainAgent(settings),
    https: new SecureAgent(settings),
    connectMs,
  };
}

type Server = Pick<S3Options, 'endpoint' | 'region' | 'forcePathStyle'>;

const settingsFor = ({ endpoint, region, forcePathStyle }: Server) => ({
  // A store with its own endpoint rarely has regions. Without an endpoint the SDK finds the region in its usual places.
  ...((region || endpoint) && { region: region ?? 'us-east-1' }),
  ...(endpoint && { endpoint }),
  forcePathStyle,
  // Older stores refuse a streamed body with the trailing checksums that the SDK adds by itself.
  requestChecksumCalculation: 'WHEN_REQUIRED' as const,
  responseChecksumValidation: 'WHEN_REQUIRED' as const,
  // Everything that matters is thrown as an error.
  logger: { debug() {}, info() {}, warn() {}, error() {} },
  // With this header, the SDK would use connections of its own instead of these sockets and proxies.
  expectContinueHeader: false,
});

/** The SDK's client. The bodies of objects and parts are sent by `send.ts` instead. */
export function connect(server: Server, agents: Agents): S3Client {
  return new S3Client({
    ...settingsFor(server),
    requestHandler: {
      connectionTimeout: agents.connectMs,
      socketTimeout: silenceMs,
      httpAgent: agents.http,
      httpsAgent: agents.https,
    },
  });
}

/**
 * Finds the address of the objects of a bucket (the path ends with a slash), and the region for which the SDK signs.
 * Both come from a signed request for a sample key, which is not sent: the SDK's rules for them depend on bucket, region and
 * endpoint, and no public function of the SDK applies them.
 */
export async function locate(server: Server, bucket: string, credentials: S3Client['config']['credentials']) {
  const sample = 'key';
  let location: { url: URL; region: string } | undefined;
  const requestHandler = {
    async handle({ method, protocol, path, headers }: SignedRequest) {
      // For a directory bucket of Amazon's, the SDK first asks for a session.
      if (method !== 'HEAD') throw new Error(`the bucket ${bucket} needs sessions, which are not supported`);
      const url = new URL(`${protocol}//${headers.host}${path.slice(0, -sample.length)}`);
      const region = /\/([^/]+)\/s3\/aws4_request/.exec(headers.authorization!)![1]!;
      location = { url, region };
      return { response: { statusCode: 200, headers: {} } };
    },
  };
  const client = new S3Client({ ...settingsFor(server), credentials, requestHandler });
  await client.send(new HeadObjectCommand({ Bucket: bucket, Key: sample }));
  return location!;
}
type SignedRequest = { method: string; protocol: string; path: string; headers: Record<string, string> };

/** The SDK's option that aborts a call. */
export const stoppedBy = (signal: AbortSignal | undefined) => (signal ? { abortSignal: signal } : {});

/** An ETag without its quotes (RFC 9110, section 8.8.3), as in the records. */
export const unquoted = (etag: string | undefined) => etag?.replace(/^"|"$/g, '');

/** Checksums are hex in records and base64 in headers. */
export const base64Of = (hex: string) => Buffer.from(hex, 'hex').toString('base64');
export const hexOfBase64 = (base64: string) => Buffer.from(base64, 'base64').toString('hex');
