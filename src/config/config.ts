import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { z } from 'zod';
import { type Environment, isSet, misspelled, readEnvironment, variables } from './environment.ts';
import { databaseUrl, httpUrl, isOff, type StorageTarget, text } from './parsers.ts';

/** The environment as a typed configuration. Durations are milliseconds, sizes bytes. */

export type Config = ReturnType<typeof readConfig>;

/**
 * Reads all settings. `embedded`: whether this installation has a PostgreSQL of its own.
 * @throws ConfigurationError with one sentence for each wrong or missing value
 */
export function readConfig(environment: Environment, { embedded = true } = {}) {
  const noDatabase = databaseUrl('because this installation includes no PostgreSQL').optional();
  const known = embedded ? variables : { ...variables, DATABASE_URL: noDatabase };
  const env = readEnvironment(known, withProxies(environment), alsoRequired(environment, embedded));
  return {
    ...copyOf(env),
    library: {
      apiUrl: trimmed(env.LIBRARY_API_URL),
      /** Exactly as set: signed links require it as the Referer. */
      appUrl: env.LIBRARY_APP_URL,
      clientId: env.LIBRARY_CLIENT_ID,
      clientSecret: env.LIBRARY_CLIENT_SECRET,
    },
    publicUrl: trimmed(env.PUBLIC_URL ?? localhostUrl(env)),
    /** Origins of sites that connect links may send users to. */
    returnOrigins: env.CONNECT_RETURN_ORIGINS ?? [],
    localUrl: localUrl(env),
    host: env.HOST,
    port: env.PORT,
    metricsPort: env.METRICS_PORT,
    /** Keys of tags that are labels in metrics. */
    metricsTags: env.METRICS_TAGS ?? [],
    /** Reverse proxies in front of asset-mirror. Undefined: none. */
    trustProxy: env.TRUST_PROXY,
    redisUrl: env.REDIS_URL,
    /** Proxies for requests to the library and to S3. Undefined: none. */
    proxies: proxiesOf(env),
    encryptionKeys: env.ENCRYPTION_KEYS,
    /** Keys that sign inventories, the newest first. */
    signingKeys: env.SIGNING_KEY,
    adminToken: env.ADMIN_TOKEN,
    signIn: signInOf(env),
    /** How long the audit log stays in the database, in ms; infinite: forever. */
    auditRetention: env.AUDIT_RETENTION,
    /** How long the objects of an asset stay after it is gone in the library; infinite: forever. */
    goneRetention: env.GONE_RETENTION,
    ...workOf(env),
    webhook: {
      url: env.WEBHOOK_URL,
      keys: env.WEBHOOK_SECRET,
      events: env.WEBHOOK_EVENTS,
      allowPrivate: env.WEBHOOK_ALLOW_PRIVATE,
    },
    /** The address to call while all is well. Undefined: none. */
    heartbeatUrl: env.HEARTBEAT_URL,
    log: { level: env.LOG_LEVEL, pretty: env.LOG_PRETTY },
    /** Undefined: no tracing. `ratio`: the share of runs that are traced. */
    tracing: env.OTEL_EXPORTER_OTLP_ENDPOINT
      ? { serviceName: env.OTEL_SERVICE_NAME, ratio: env.OTEL_TRACES_SAMPLER_ARG }
      : undefined,
    shutdownGrace: env.SHUTDOWN_GRACE,
    /** Variables that are probably misspelled settings. */
    misspelled: misspelled(environment),
    /** Names this process in leases. */
    instance: `${hostname()}-${process.pid}-${Math.random().toString(36).slice(2, 8)}`,
  };
}

type Values = ReturnType<typeof readEnvironment<typeof variables>>;

/** How assets are listed, transferred and read back. */
const workOf = (env: Values) => ({
  sync: {
    interval: env.SYNC_INTERVAL,
    /** Of connections with recent uploads. */
    intervalActive: env.SYNC_INTERVAL_ACTIVE,
    reconcileInterval: env.RECONCILE_INTERVAL,
    overlap: env.CURSOR_OVERLAP,
  },
  filters: { includeTypes: env.INCLUDE_ASSET_TYPES, excludeTypes: env.EXCLUDE_ASSET_TYPES },
  processing: { poll: env.PROCESSING_POLL, giveUp: env.PROCESSING_GIVE_UP },
  transcripts: {
    mirror: env.MIRROR_TRANSCRIPTS,
    search: env.SEARCH_TRANSCRIPTS,
    delay: env.TRANSCRIPT_DELAY,
    giveUp: env.TRANSCRIPT_GIVE_UP,
  },
  transfer: {
    concurrency: env.TRANSFER_CONCURRENCY,
    perConnection: env.CONNECTION_CONCURRENCY,
    stallTimeout: env.TRANSFER_STALL_TIMEOUT,
    /** Undefined: no minimum rate. */
    minRate: env.TRANSFER_MIN_RATE
      ? { bytesPerSecond: env.TRANSFER_MIN_RATE, windowMs: env.TRANSFER_MIN_RATE_WINDOW }
      : undefined,
    bandwidth: env.BANDWIDTH_LIMIT,
    /** Hosts with private addresses that download links may point to. */
    allowPrivate: env.DOWNLOAD_ALLOW_PRIVATE,
  },
  scrub: {
    /** Undefined: none. */
    cycle: env.SCRUB_CYCLE || undefined,
    bandwidth: env.SCRUB_BANDWIDTH,
  },
  /** How often a restore drill is made, in ms. Undefined: only on request. */
  drillInterval: env.DRILL_INTERVAL || undefined,
});

/** Settings that are optional, but required together with others that are set. */
function alsoRequired(environment: Environment, embedded: boolean): string[] {
  const names: string[] = [];
  if (!embedded) names.push('DATABASE_URL');
  // With DATABASE_URL, several processes may run. They must share these secrets, so none is generated in DATA_DIR.
  if (!embedded || isSet(environment, 'DATABASE_URL')) names.push('ENCRYPTION_KEYS', 'ADMIN_TOKEN');
  if (isSet(environment, 'WEBHOOK_URL')) names.push('WEBHOOK_SECRET');
  // OIDC_CLIENT_SECRET alone requires nothing: its file may be mounted, and empty. Without TOKEN_SIGN_IN, only a provider opens
  // the dashboard.
  const provider = ['OIDC_ISSUER', 'OIDC_CLIENT_ID', 'OIDC_ROLES'];
  if (provider.some((name) => isSet(environment, name)) || isOff(environment.TOKEN_SIGN_IN))
    names.push(...provider, 'OIDC_CLIENT_SECRET');
  // The port is known only once the process listens.
  if (/^\s*0+\s*$/.test(environment.PORT ?? '')) names.push('PUBLIC_URL');
  return names;
}

/** How operators sign in, and for how long. */
const signInOf = (env: Values) => ({
  /** Whether browsers may sign in with ADMIN_TOKEN. */
  token: env.TOKEN_SIGN_IN,
  sessionIdle: env.SESSION_IDLE,
  sessionLifetime: env.SESSION_LIFETIME,
  viewerMedia: env.VIEWER_MEDIA,
  /** The values of the claim that give a role. */
  grants: env.OIDC_ROLES ?? [],
  /** Undefined: no provider. */
  provider: env.OIDC_ISSUER
    ? {
        issuer: env.OIDC_ISSUER,
        clientId: env.OIDC_CLIENT_ID!,
        clientSecret: env.OIDC_CLIENT_SECRET!,
        scopes: env.OIDC_SCOPES,
        roleClaim: env.OIDC_ROLE_CLAIM,
        grants: env.OIDC_ROLES!,
      }
    : undefined,
});

const ofLibrary = {
  LIBRARY_API_URL: true,
  LIBRARY_APP_URL: true,
  LIBRARY_CLIENT_ID: true,
  LIBRARY_CLIENT_SECRET: true,
} as const;
type CopyValues = Omit<Values, keyof typeof ofLibrary>;

/** The settings that `restore` and `rebuild` need: where the copy is, and what is kept. Neither asks the library. */
export type CopyConfig = ReturnType<typeof copyOf>;

function copyOf(env: CopyValues) {
  const dataDir = resolve(env.DATA_DIR);
  return {
    databaseUrl: env.DATABASE_URL,
    storage: {
      target: env.STORAGE_URL ?? ({ kind: 'directory', path: resolve(dataDir, 'mirror') } satisfies StorageTarget),
      s3: { ...s3Of(env), proxies: proxiesOf(env) },
      keyTemplate: env.KEY_TEMPLATE,
      contentHash: env.CONTENT_HASH === 'sha256',
    },
    dataDir,
    thumbnails: { mirror: env.MIRROR_THUMBNAILS },
    /** How long superseded files are kept; 0: not at all, infinity: always. */
    keepVersions: env.KEEP_VERSIONS,
  };
}

/** The settings of verbs that ask no library. @throws ConfigurationError */
export function readCopyConfig(environment: Environment, { embedded = true } = {}): CopyConfig {
  const { shape } = z.object(variables).omit(ofLibrary);
  return copyOf(readEnvironment(shape, withProxies(environment), embedded ? [] : ['DATABASE_URL']));
}

const s3Of = (env: CopyValues) => ({
  endpoint: env.S3_ENDPOINT,
  publicEndpoint: env.S3_PUBLIC_ENDPOINT,
  region: env.S3_REGION,
  forcePathStyle: env.S3_FORCE_PATH_STYLE,
  checksums: env.S3_CHECKSUMS,
  storageClass: env.S3_STORAGE_CLASS,
  objectLock: env.S3_OBJECT_LOCK,
  sse: env.S3_SSE,
  sseKmsKeyId: env.S3_SSE_KMS_KEY_ID,
});

/** HTTP_PROXY alone is used for https too. */
function proxiesOf({ HTTP_PROXY, HTTPS_PROXY = HTTP_PROXY, NO_PROXY }: CopyValues) {
  return HTTPS_PROXY ? { http: HTTP_PROXY ?? '', https: HTTPS_PROXY, no: NO_PROXY ?? '' } : undefined;
}

/** Many systems set the proxy variables in lower case; these win, as with curl. */
function withProxies(environment: Environment): Environment {
  const lower = ['http_proxy', 'https_proxy', 'no_proxy'].filter((name) => environment[name]?.trim());
  return { ...environment, ...Object.fromEntries(lower.map((name) => [name.toUpperCase(), environment[name]])) };
}

/** Configuration of CLI commands that call a running asset-mirror. */
export function readClientConfig(environment: Environment) {
  const { HOST, PORT, DATA_DIR, ADMIN_TOKEN } = variables;
  const ASSET_MIRROR_TOKEN = text('an API token').optional();
  const ASSET_MIRROR_URL = httpUrl('the address of the running asset-mirror', 'https://mirror.example.com').optional();
  const env = readEnvironment({ ASSET_MIRROR_URL, ASSET_MIRROR_TOKEN, HOST, PORT, DATA_DIR, ADMIN_TOKEN }, environment);
  return {
    url: trimmed(env.ASSET_MIRROR_URL ?? localUrl(env)),
    token: env.ASSET_MIRROR_TOKEN ?? env.ADMIN_TOKEN,
    dataDir: resolve(env.DATA_DIR),
  };
}

/** The address of asset-mirror for programs on the same machine. */
function localUrl({ HOST, PORT }: Pick<Values, 'HOST' | 'PORT'>): string {
  const host = HOST === '0.0.0.0' ? '127.0.0.1' : HOST === '::' ? '::1' : HOST;
  return `http://${host.includes(':') ? `[${host}]` : host}:${PORT}`;
}

/** `localUrl` for browsers: a redirect URI with http must name `localhost` (spec, section 2.1). */
const localhostUrl = (env: Values) => localUrl(env).replace(/^http:\/\/(127\.0\.0\.1|\[::1\]):/, 'http://localhost:');

const trimmed = (url: string) => url.replace(/\/+$/, '');
