import { isIP } from 'node:net';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { z } from 'zod';
import { ConfigurationError, scrub } from '../errors.ts';
import { parseDuration, parseRate, syncIntervals } from '../units.ts';
import { type WebhookKind, webhookKinds } from '../webhook-kinds.ts';
import { parseRedisUrl } from './redis-address.ts';
import { leastTokenLength } from './secrets.ts';

/** The only reader of the environment: text in, checked values out. Durations are milliseconds, sizes bytes. */

type Environment = Readonly<Record<string, string | undefined>>;

/** Each variable: its schema, and in words what is expected of it (the second half of the sentence that refuses it). */
function variable<T extends z.ZodType>(schema: T, expected: string): T {
  return schema.meta({ expected });
}

function parsed<T>(parse: (text: string) => T | undefined, allow: (value: T) => boolean = () => true) {
  return z.string().transform((text, context) => {
    const value = parse(text);
    if (value !== undefined && allow(value)) return value;
    context.addIssue('wrong');
    return z.NEVER;
  });
}

const httpUrl = (expected: string, example: string, options: { query?: boolean } = {}) =>
  variable(
    parsed((text) => {
      const url = URL.canParse(text) ? new URL(text) : undefined;
      const bare = options.query || (!url?.search && !url?.hash && !url?.username && !url?.password);
      return url && /^https?:$/.test(url.protocol) && bare ? text : undefined;
    }),
    `${expected}, such as ${example}${options.query ? '' : ', without user and password'}`,
  );
const days = 86_400_000;
const duration = (fallback: string, options: { least?: number; most?: number } = {}) => {
  const { least = 1, most = 3650 * days } = options;
  return variable(
    parsed(parseDuration, (ms) => ms >= least && ms <= most).prefault(fallback),
    `a duration with units, such as 30s, 5m or 24h, from ${least < 1000 ? `${least}ms` : `${least / 1000}s`} to ${most / days} days`,
  );
};
/** Timers know no longer ones: they would end at once. */
const timer = (fallback: string, least = 1) => duration(fallback, { least, most: 24 * days });
const count = (fallback: number, max: number) =>
  variable(
    parsed(
      (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined),
      (n) => n >= 1 && n <= max,
    ).prefault(String(fallback)),
    `a whole number from 1 to ${max}`,
  );
const flag = (fallback: boolean) =>
  variable(
    parsed(
      (text) => ({ true: true, false: false, 1: true, 0: false, yes: true, no: false })[text.toLowerCase()],
    ).prefault(String(fallback)),
    'true or false',
  );
const text = (expected: string) => variable(z.string(), expected);
const list = () =>
  variable(
    parsed((t) =>
      t
        .split(',')
        .map((part) => part.trim())
        .filter(Boolean),
    ).prefault(''),
    'names with commas between them, such as videos,photography',
  );
const databaseUrl = (or: string) =>
  variable(
    parsed((t) => (URL.canParse(t) && /^postgres(ql)?:$/.test(new URL(t).protocol) ? t : undefined)).optional(),
    `postgres://user:password@host/database, ${or}`,
  );
const portNumber = parsed(
  (t) => (/^\d{1,5}$/.test(t) ? Number(t) : undefined),
  (n) => n <= 65535,
);
const portExpected = 'a port number from 0 to 65535 (0 takes any free one)';

/** As other programs take it: without a scheme it is http. */
const proxy = () =>
  variable(
    parsed((t) => {
      const url = /^\w+:\/\//.test(t) ? t : `http://${t}`;
      return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol) ? url : undefined;
    }).optional(),
    'the address of a proxy, such as http://proxy.example.com:3128',
  );

/** As fastify takes them. A number of hops is none: whoever comes past the proxy could then say any address. */
function parseProxies(text: string): string[] | undefined {
  const places = text.split(',').map((place) => place.trim());
  const known = (place: string) => {
    if (['loopback', 'linklocal', 'uniquelocal'].includes(place)) return true;
    const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(place) ?? [];
    const version = isIP(address);
    return version !== 0 && (bits === undefined || Number(bits) <= (version === 4 ? 32 : 128));
  };
  return places.every(known) ? places : undefined;
}

/** `true`: any address. Else the hosts that may be private; none with `false`. */
function parsePrivateHosts(text: string): true | string[] | undefined {
  if (/^(true|1|yes)$/i.test(text)) return true;
  if (/^(false|0|no)$/i.test(text)) return [];
  const hosts = text.split(',').map((host) =>
    host
      .trim()
      .toLowerCase()
      .replace(/^\[|\]$/g, ''),
  );
  return hosts.every((host) => isIP(host) || /^[\w-]+(\.[\w-]+)*$/.test(host)) ? hosts : undefined;
}

/**
 * The key in a Standard Webhooks secret: 24 to 64 bytes in base64, with or without the prefix `whsec_`. Undefined if it
 * is not one (https://www.standardwebhooks.com, "Signature scheme").
 */
function webhookKey(secret: string): Buffer | undefined {
  const text = secret.replace(/^whsec_/, '');
  const key = Buffer.from(text, 'base64');
  return /^[\w+/-]+=*$/.test(text) && key.length >= 24 && key.length <= 64 ? key : undefined;
}

/** A 32-byte key in base64 or base64url. */
function parseKey(text: string): Buffer | undefined {
  const key = Buffer.from(text, 'base64');
  return /^[\w+/-]+=*$/.test(text) && key.length === 32 ? key : undefined;
}

/**
 * `{companyId}` and `{assetId}` must be whole segments and `{filename}` the last one: two assets can then never share a
 * key, not even with one id in two companies, nor one's key be the folder of another's.
 */
function validTemplate(template: string): boolean {
  const segments = template.split('/');
  const known = /^[^{}]*(\{(companyId|projectId|assetId|filename)\}[^{}]*)*$/;
  return (
    segments.every((s) => s !== '' && s !== '.' && s !== '..' && known.test(s)) &&
    segments.includes('{companyId}') &&
    segments.includes('{assetId}') &&
    segments.at(-1) === '{filename}' &&
    !template.startsWith('_mirror')
  );
}

const isWebhookKind = (kind: string): kind is WebhookKind => (webhookKinds as readonly string[]).includes(kind);

export type StorageTarget = { kind: 's3'; bucket: string; prefix: string } | { kind: 'directory'; path: string };

/** `s3://bucket/prefix` or `file:///dir`. */
function parseStorageUrl(value: string): StorageTarget | undefined {
  const s3 = /^s3:\/\/([a-z0-9][a-z0-9._-]{1,62})(?:\/(.*))?$/i.exec(value);
  if (s3) {
    const prefix = (s3[2] ?? '').replace(/^\/+|\/+$/g, '');
    if (prefix.split('/').some((segment) => segment === '..' || segment === '.')) return undefined;
    return { kind: 's3', bucket: s3[1]!, prefix };
  }
  // Not by URL: `file://./data` and spaces in a path mean what they say.
  const file = /^file:\/\/(.+)$/.exec(value);
  return file ? { kind: 'directory', path: resolve(decode(file[1]!)) } : undefined;
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

const libraryUrl = (which: string) =>
  httpUrl(`the ${which} address of the Asset Library Service`, 'https://library.example.com');

const variables = {
  LIBRARY_API_URL: libraryUrl('API'),
  LIBRARY_APP_URL: libraryUrl('sign-in'),
  LIBRARY_CLIENT_ID: text('the client_id of the app registration'),
  LIBRARY_CLIENT_SECRET: text('the client_secret of the app registration'),
  PUBLIC_URL: httpUrl('the address at which people reach this service', 'https://mirror.example.com').prefault(
    'http://localhost:8080',
  ),
  HOST: text('an address to listen on').prefault('127.0.0.1'),
  PORT: variable(portNumber.prefault('8080'), portExpected),
  METRICS_PORT: variable(portNumber.optional(), portExpected),
  TRUST_PROXY: variable(
    parsed(parseProxies).optional(),
    'addresses and ranges with commas between them, such as 10.0.0.0/8,fd00::/8, or of loopback, linklocal, uniquelocal',
  ),
  DATABASE_URL: databaseUrl('or nothing at all'),
  REDIS_URL: variable(
    parsed((t) => {
      const single = URL.canParse(t) && ['redis:', 'rediss:'].includes(new URL(t).protocol);
      return single || parseRedisUrl(t) ? t : undefined;
    }).optional(),
    'redis://host:6379, redis-sentinel://host,host/0#master, redis-cluster://host,host, or rediss… for TLS; or nothing at all',
  ),
  STORAGE_URL: variable(
    parsed((t) => (parseStorageUrl(t) ? t : undefined)).optional(),
    's3://bucket/prefix or file:///directory',
  ),
  S3_ENDPOINT: httpUrl('the address of the S3-compatible store', 'https://s3.example.com').optional(),
  S3_REGION: text('a region').optional(),
  S3_FORCE_PATH_STYLE: flag(false),
  S3_CHECKSUMS: variable(
    z.enum(['auto', 'crc32', 'crc64nvme', 'md5-etag', 'none']).prefault('auto'),
    'auto, crc32, crc64nvme, md5-etag or none',
  ),
  S3_STORAGE_CLASS: text('a storage class').optional(),
  S3_SSE: variable(z.enum(['AES256', 'aws:kms', 'aws:kms:dsse']).optional(), 'AES256, aws:kms or aws:kms:dsse'),
  S3_SSE_KMS_KEY_ID: text('a KMS key id').optional(),
  DATA_DIR: text('a directory').prefault('./data'),
  ENCRYPTION_KEYS: variable(
    parsed((t) => {
      const keys = t.split(',').map((key) => parseKey(key.trim()));
      return keys.every((key) => key !== undefined) ? keys : undefined;
    }).optional(),
    '32-byte keys in base64 with commas between them (openssl rand -base64 32 makes one)',
  ),
  ADMIN_TOKEN: variable(
    z.string().min(leastTokenLength).optional(),
    `a random text of at least ${leastTokenLength} characters (openssl rand -base64 32 makes one)`,
  ),
  HTTP_PROXY: proxy(),
  HTTPS_PROXY: proxy(),
  NO_PROXY: text('host names with commas between them').optional(),
  KEY_TEMPLATE: variable(
    parsed((t) => (validTemplate(t) ? t : undefined)).prefault('{companyId}/{projectId}/{assetId}/{filename}'),
    'a path of {companyId}, {projectId}, {assetId} and {filename} in which {companyId} and {assetId} are segments of their own and {filename} is the last one',
  ),
  SYNC_INTERVAL: duration('5m', { ...syncIntervals, least: 100 }),
  RECONCILE_INTERVAL: duration('24h', { least: 100 }),
  CURSOR_OVERLAP: duration('10m', { least: 0 }),
  PROCESSING_POLL: duration('30s'),
  PROCESSING_GIVE_UP: duration('24h'),
  TRANSCRIPT_DELAY: duration('5m', { least: 0 }),
  TRANSCRIPT_GIVE_UP: duration('24h'),
  TRANSFER_CONCURRENCY: count(8, 1000),
  CONNECTION_CONCURRENCY: count(4, 1000),
  TRANSFER_STALL_TIMEOUT: timer('30s'),
  TRANSFER_MIN_RATE: variable(
    parsed((t) => (t.toLowerCase() === 'off' ? 0 : parseRate(t))).prefault('4KiB/s'),
    'a size per second, such as 4KiB/s, or off',
  ),
  TRANSFER_MIN_RATE_WINDOW: timer('3m'),
  BANDWIDTH_LIMIT: variable(parsed(parseRate).optional(), 'a size per second, such as 50MiB/s'),
  DOWNLOAD_ALLOW_PRIVATE: variable(
    parsed(parsePrivateHosts).prefault('false'),
    'true, false, or hosts with commas between them, such as media.internal,10.0.0.5',
  ),
  INCLUDE_ASSET_TYPES: list(),
  EXCLUDE_ASSET_TYPES: list(),
  MIRROR_THUMBNAILS: flag(true),
  MIRROR_TRANSCRIPTS: flag(true),
  WEBHOOK_URL: httpUrl('the address that events are sent to', 'https://hooks.example.com/mirror', {
    query: true,
  }).optional(),
  WEBHOOK_SECRET: variable(
    parsed((t) => {
      const keys = t.split(',').map((secret) => webhookKey(secret.trim()));
      return keys.every((key) => key !== undefined) ? keys : undefined;
    }).optional(),
    'whsec_ and 24 to 64 bytes in base64 (openssl rand -base64 32 makes them), or several with commas between them',
  ),
  WEBHOOK_EVENTS: variable(
    parsed((t) => {
      const kinds = t.split(',').map((kind) => kind.trim());
      return kinds.every(isWebhookKind) ? kinds : undefined;
    }).prefault('connection.disconnected,connection.recovered,sync.failed,asset.failed'),
    `names with commas between them, of ${webhookKinds.join(', ')}`,
  ),
  WEBHOOK_ALLOW_PRIVATE: flag(false),
  LOG_LEVEL: variable(
    z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).prefault('info'),
    'trace, debug, info, warn, error, fatal or silent',
  ),
  LOG_PRETTY: flag(process.stdout.isTTY ?? false),
  SHUTDOWN_GRACE: timer('25s', 0),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl('the address of an OpenTelemetry collector', 'http://localhost:4318').optional(),
  OTEL_SERVICE_NAME: text('a name').prefault('asset-mirror'),
  OTEL_TRACES_SAMPLER_ARG: variable(
    parsed(
      (t) => (/^\d*\.?\d+$/.test(t) ? Number(t) : undefined),
      (n) => n <= 1,
    ).prefault('1'),
    'a share from 0 to 1',
  ),
};

/** Variables whose values are never shown. */
export const secretVariables: ReadonlySet<string> = new Set([
  'LIBRARY_CLIENT_SECRET',
  'DATABASE_URL',
  'REDIS_URL',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'ENCRYPTION_KEYS',
  'ADMIN_TOKEN',
  'WEBHOOK_URL',
  'WEBHOOK_SECRET',
]);

/** The names of all variables, in the order of the documentation. */
export const variableNames: readonly string[] = Object.keys(variables);

export type Config = ReturnType<typeof readConfig>;

/**
 * Reads everything the service needs. `embedded`: whether this installation has a PostgreSQL of its own.
 * @throws ConfigurationError with one sentence for each wrong or missing value
 */
export function readConfig(environment: Environment, { embedded = true } = {}) {
  const shared: string[] = [];
  if (!embedded) shared.push('DATABASE_URL');
  // With a database of one's own nothing is made under DATA_DIR: several processes must share these two.
  if (!embedded || environment.DATABASE_URL?.trim()) shared.push('ENCRYPTION_KEYS', 'ADMIN_TOKEN');
  if (environment.WEBHOOK_URL?.trim()) shared.push('WEBHOOK_SECRET');
  const known = z.object({
    ...variables,
    ...(!embedded && { DATABASE_URL: databaseUrl('for no PostgreSQL comes with this installation') }),
  });
  const env = check(known, withProxies(environment), shared);
  const dataDir = resolve(env.DATA_DIR);
  // What is said of http only holds for https, too.
  const httpsProxy = env.HTTPS_PROXY ?? env.HTTP_PROXY;
  const proxies = httpsProxy ? { http: env.HTTP_PROXY ?? '', https: httpsProxy, no: env.NO_PROXY ?? '' } : undefined;
  return {
    library: {
      apiUrl: trimmed(env.LIBRARY_API_URL),
      /** Exactly as written: it is the Referer that signed links demand. */
      appUrl: env.LIBRARY_APP_URL,
      clientId: env.LIBRARY_CLIENT_ID,
      clientSecret: env.LIBRARY_CLIENT_SECRET,
    },
    publicUrl: trimmed(env.PUBLIC_URL),
    host: env.HOST,
    port: env.PORT,
    metricsPort: env.METRICS_PORT,
    /** Proxies in front. Undefined: none. */
    trustProxy: env.TRUST_PROXY,
    databaseUrl: env.DATABASE_URL,
    redisUrl: env.REDIS_URL,
    /** On the way to the library and to S3. Undefined: none. */
    proxies,
    storage: {
      target: env.STORAGE_URL
        ? parseStorageUrl(env.STORAGE_URL)!
        : ({ kind: 'directory', path: resolve(dataDir, 'mirror') } as const),
      s3: {
        endpoint: env.S3_ENDPOINT,
        region: env.S3_REGION,
        forcePathStyle: env.S3_FORCE_PATH_STYLE,
        checksums: env.S3_CHECKSUMS,
        storageClass: env.S3_STORAGE_CLASS,
        sse: env.S3_SSE,
        sseKmsKeyId: env.S3_SSE_KMS_KEY_ID,
        proxies,
      },
      keyTemplate: env.KEY_TEMPLATE,
    },
    dataDir,
    encryptionKeys: env.ENCRYPTION_KEYS,
    adminToken: env.ADMIN_TOKEN,
    sync: {
      interval: env.SYNC_INTERVAL,
      reconcileInterval: env.RECONCILE_INTERVAL,
      overlap: env.CURSOR_OVERLAP,
      includeTypes: env.INCLUDE_ASSET_TYPES,
      excludeTypes: env.EXCLUDE_ASSET_TYPES,
    },
    processing: { poll: env.PROCESSING_POLL, giveUp: env.PROCESSING_GIVE_UP },
    transcripts: { mirror: env.MIRROR_TRANSCRIPTS, delay: env.TRANSCRIPT_DELAY, giveUp: env.TRANSCRIPT_GIVE_UP },
    thumbnails: { mirror: env.MIRROR_THUMBNAILS },
    transfer: {
      concurrency: env.TRANSFER_CONCURRENCY,
      perConnection: env.CONNECTION_CONCURRENCY,
      stallTimeout: env.TRANSFER_STALL_TIMEOUT,
      /** Undefined: a file may come at any rate. */
      minRate: env.TRANSFER_MIN_RATE
        ? { bytesPerSecond: env.TRANSFER_MIN_RATE, windowMs: env.TRANSFER_MIN_RATE_WINDOW }
        : undefined,
      bandwidth: env.BANDWIDTH_LIMIT,
      /** Hosts that links may lead to although their addresses are not public. */
      allowPrivate: env.DOWNLOAD_ALLOW_PRIVATE,
    },
    webhook: {
      url: env.WEBHOOK_URL,
      keys: env.WEBHOOK_SECRET,
      events: env.WEBHOOK_EVENTS,
      allowPrivate: env.WEBHOOK_ALLOW_PRIVATE,
    },
    log: { level: env.LOG_LEVEL, pretty: env.LOG_PRETTY },
    /** Undefined: nothing is traced. `ratio`: of how many runs. */
    tracing: env.OTEL_EXPORTER_OTLP_ENDPOINT
      ? { serviceName: env.OTEL_SERVICE_NAME, ratio: env.OTEL_TRACES_SAMPLER_ARG }
      : undefined,
    shutdownGrace: env.SHUTDOWN_GRACE,
    /** Names this process in leases. */
    instance: `${hostname()}-${process.pid}-${Math.random().toString(36).slice(2, 8)}`,
  };
}

/** What a verb needs that talks to a running service. */
export function readClientConfig(environment: Environment) {
  const env = check(
    z.object({
      ASSET_MIRROR_URL: httpUrl('the address of the running service', 'https://mirror.example.com').optional(),
      HOST: variables.HOST,
      PORT: variables.PORT,
      DATA_DIR: variables.DATA_DIR,
      ADMIN_TOKEN: variables.ADMIN_TOKEN,
    }),
    environment,
  );
  const host = env.HOST === '0.0.0.0' ? '127.0.0.1' : env.HOST === '::' ? '::1' : env.HOST;
  return {
    url: trimmed(env.ASSET_MIRROR_URL ?? `http://${host.includes(':') ? `[${host}]` : host}:${env.PORT}`),
    adminToken: env.ADMIN_TOKEN,
    dataDir: resolve(env.DATA_DIR),
  };
}

/**
 * An empty value counts as unset: that is how compose files and charts pass what nobody filled in. Spaces and line ends
 * around a value, as files with secrets have them, are not part of it.
 */
function check<T extends z.ZodRawShape>(
  schema: z.ZodObject<T>,
  environment: Environment,
  alsoRequired: readonly string[] = [],
): z.output<z.ZodObject<T>> {
  const given = Object.fromEntries(
    Object.entries(environment)
      .map(([name, value]) => [name, value?.trim()] as const)
      .filter(([, value]) => value),
  );
  const result = schema.safeParse(given);
  const wrong = new Set([
    ...(result.error?.issues.map((issue) => String(issue.path[0])) ?? []),
    ...alsoRequired.filter((name) => given[name] === undefined),
  ]);
  if (wrong.size > 0 || !result.success) {
    throw new ConfigurationError(
      [...wrong].map((name) => `${name} ${shown(name, given[name])}; expected ${expectedOf(schema.shape[name])}.`),
    );
  }
  return result.data;
}

function shown(name: string, value: string | undefined): string {
  if (value === undefined) return 'is not set';
  return secretVariables.has(name)
    ? `is set to something else (${value.length} characters, not shown)`
    : `is ${JSON.stringify(scrub(value))}`;
}

function expectedOf(schema: unknown): string {
  // `prefault` and `optional` wrap the schema that carries the words.
  for (let s = schema as z.ZodType & { def: { innerType?: z.ZodType } }; s; s = s.def.innerType as typeof s) {
    const expected = s.meta()?.expected;
    if (typeof expected === 'string') return expected;
  }
  return 'something else';
}

/** These are the only variables that many systems have in lower case; curl and others let those go before. */
function withProxies(environment: Environment): Environment {
  const lower = ['http_proxy', 'https_proxy', 'no_proxy'].filter((name) => environment[name]?.trim());
  return { ...environment, ...Object.fromEntries(lower.map((name) => [name.toUpperCase(), environment[name]])) };
}

const trimmed = (url: string) => url.replace(/\/+$/, '');
