import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { ConfigurationError, redact } from '../floor/errors.ts';
import { tagKey } from '../floor/tags.ts';
import { parseRate, syncIntervals } from '../floor/units.ts';
import { defaultWebhookKinds, webhookKinds } from '../floor/webhook-kinds.ts';
import * as p from './parsers.ts';
import { parseRedisUrl } from './redis-address.ts';
import { leastTokenLength } from './secrets.ts';
import { similarNames } from './similar-names.ts';

/** The environment variables: what each may be, and the errors of those that are wrong. */

export type Environment = Readonly<Record<string, string | undefined>>;

/** Every variable of asset-mirror, in the order of the documentation. */
export const variables = {
  LIBRARY_API_URL: p.libraryUrl('API'),
  LIBRARY_APP_URL: p.libraryUrl('sign-in'),
  LIBRARY_CLIENT_ID: p.text('the client_id of the app registration'),
  LIBRARY_CLIENT_SECRET: p.text('the client_secret of the app registration'),
  PUBLIC_URL: p.httpUrl('the address at which people reach this service', 'https://mirror.example.com').optional(),
  CONNECT_RETURN_ORIGINS: p
    .list(p.parseReturnOrigin, 'https origins with commas between them, such as https://agency.example')
    .optional(),
  HOST: p.text('an address to listen on').prefault('127.0.0.1'),
  PORT: p.port().prefault('8080'),
  METRICS_PORT: p.port().optional(),
  METRICS_TAGS: p
    .list((key) => (tagKey.test(key) ? key : undefined), 'keys of tags with commas between them, such as client,tier')
    .optional(),
  TRUST_PROXY: p
    .list(
      p.parseTrustedProxy,
      'addresses and ranges with commas between them, such as 10.0.0.0/8,fd00::/8, or of loopback, linklocal, uniquelocal',
    )
    .optional(),
  DATABASE_URL: p.databaseUrl('or nothing at all').optional(),
  REDIS_URL: p
    .parsed(
      (t) => (p.isUrl(t, /^rediss?:$/) || parseRedisUrl(t) ? t : undefined),
      'redis://host:6379, redis-sentinel://host,host/0#master, redis-cluster://host,host, or rediss… for TLS; or nothing at all',
    )
    .optional(),
  STORAGE_URL: p
    .parsed(
      p.parseStorageUrl,
      's3://bucket/prefix, with 3 to 63 letters, digits, dots, hyphens or underscores in the name of the bucket and no . or .. in the prefix; or file:///directory',
    )
    .optional(),
  S3_ENDPOINT: p.httpUrl('the address of the S3-compatible store', 'https://s3.example.com').optional(),
  S3_PUBLIC_ENDPOINT: p
    .parsed(
      p.parsePublicEndpoint,
      'the address at which browsers reach the S3-compatible store, such as https://s3.example.com, or none',
    )
    .optional(),
  S3_REGION: p.text('a region').optional(),
  S3_FORCE_PATH_STYLE: p.flag(false),
  S3_CHECKSUMS: p.oneOf('auto', 'sha256', 'crc32', 'md5-etag', 'none').prefault('auto'),
  CONTENT_HASH: p.oneOf('sha256', 'none').prefault('sha256'),
  S3_STORAGE_CLASS: p.text('a storage class').optional(),
  S3_OBJECT_LOCK: p
    .parsed(
      p.parseObjectLock,
      'governance or compliance, a colon and a duration of at least 1s, such as governance:365d',
    )
    .optional(),
  S3_SSE: p.oneOf('AES256', 'aws:kms', 'aws:kms:dsse').optional(),
  S3_SSE_KMS_KEY_ID: p.text('a KMS key id').optional(),
  DATA_DIR: p.text('a directory').prefault('./data'),
  ENCRYPTION_KEYS: p
    .list(p.parseKey, '32-byte keys in base64 with commas between them (openssl rand -base64 32 makes one)')
    .optional(),
  SIGNING_KEY: p
    .list(
      p.parseKey,
      'a 32-byte key in base64 (openssl rand -base64 32 makes one), or several with commas between them, the newest first',
    )
    .optional(),
  ADMIN_TOKEN: p.variable(
    z.string().min(leastTokenLength).optional(),
    `a random text of at least ${leastTokenLength} characters (openssl rand -base64 32 makes one)`,
  ),
  TOKEN_SIGN_IN: p.flag(true),
  SESSION_IDLE: p.duration('2h', { least: 1000 }),
  SESSION_LIFETIME: p.duration('12h', { least: 1000 }),
  VIEWER_MEDIA: p.flag(false),
  OIDC_ISSUER: p
    .parsed(p.parseIssuer, 'the https address of an OpenID provider, such as https://login.example.com/realms/staff')
    .optional(),
  OIDC_CLIENT_ID: p.text('the client id that the OpenID provider has for asset-mirror').optional(),
  OIDC_CLIENT_SECRET: p.text('the client secret that the OpenID provider has for asset-mirror').optional(),
  OIDC_SCOPES: p
    .parsed((t) => (/(^| )openid( |$)/.test(t) ? t : undefined), 'scopes with spaces between them, with openid')
    .prefault('openid profile email'),
  OIDC_ROLE_CLAIM: p.text('the name of a claim').prefault('groups'),
  OIDC_ROLES: p
    .list(
      p.parseGrant,
      'a role (viewer, operator or admin), a colon and a value of the claim, with commas between them, such as viewer:everyone,admin:platform',
    )
    .optional(),
  AUDIT_RETENTION: p.parsed(p.parseRetention, 'forever, or a duration with units, such as 400d').prefault('400d'),
  HTTP_PROXY: p.proxyUrl().optional(),
  HTTPS_PROXY: p.proxyUrl().optional(),
  NO_PROXY: p.text('host names with commas between them').optional(),
  KEY_TEMPLATE: p
    .parsed(
      p.parseTemplate,
      'a path of {companyId}, {projectId}, {assetId} and {filename} in which {companyId} and {assetId} are segments of their own and {filename} is the last one',
    )
    .prefault('{companyId}/{projectId}/{assetId}/{filename}'),
  GONE_RETENTION: p.parsed(p.parseRetention, 'forever, or a duration with units, such as 90d').prefault('forever'),
  SYNC_INTERVAL: p.duration('5m', syncIntervals),
  SYNC_INTERVAL_ACTIVE: p.duration('30s', syncIntervals),
  RECONCILE_INTERVAL: p.duration('24h', { least: syncIntervals.least }),
  CURSOR_OVERLAP: p.duration('10m', { least: 0 }),
  PROCESSING_POLL: p.duration('30s'),
  PROCESSING_GIVE_UP: p.duration('24h'),
  TRANSCRIPT_DELAY: p.duration('5m', { least: 0 }),
  TRANSCRIPT_GIVE_UP: p.duration('24h'),
  TRANSFER_CONCURRENCY: p.count(128, 1000),
  CONNECTION_CONCURRENCY: p.count(128, 1000),
  TRANSFER_STALL_TIMEOUT: p.timer('30s'),
  TRANSFER_MIN_RATE: p
    .parsed((t) => (t.toLowerCase() === 'off' ? 0 : parseRate(t)), 'a size per second, such as 4KiB/s, or off')
    .prefault('4KiB/s'),
  TRANSFER_MIN_RATE_WINDOW: p.timer('3m'),
  BANDWIDTH_LIMIT: p.bandwidth().optional(),
  SCRUB_CYCLE: p.cycle('90d'),
  SCRUB_BANDWIDTH: p.parsed(parseRate, 'a size per second, such as 10MiB/s').prefault('10MiB/s'),
  DRILL_INTERVAL: p.cycle('7d'),
  DOWNLOAD_ALLOW_PRIVATE: p
    .parsed(p.parsePrivateHosts, 'true, false, or hosts with commas between them, such as media.internal,10.0.0.5')
    .prefault('false'),
  INCLUDE_ASSET_TYPES: p.typeNames(),
  EXCLUDE_ASSET_TYPES: p.typeNames(),
  KEEP_VERSIONS: p.keepTime('90d'),
  MIRROR_THUMBNAILS: p.flag(true),
  MIRROR_TRANSCRIPTS: p.flag(true),
  SEARCH_TRANSCRIPTS: p.flag(false),
  WEBHOOK_URL: p
    .httpUrl('the address that events are sent to', 'https://hooks.example.com/mirror', { query: true })
    .optional(),
  WEBHOOK_SECRET: p
    .list(
      p.parseWebhookSecret,
      'whsec_ and 24 to 64 bytes in base64 (openssl rand -base64 32 makes them), or several with commas between them',
    )
    .optional(),
  WEBHOOK_EVENTS: p
    .list(
      (kind) => webhookKinds.find((known) => known === kind),
      `names with commas between them, of ${webhookKinds.join(', ')}`,
    )
    .prefault(defaultWebhookKinds.join()),
  WEBHOOK_ALLOW_PRIVATE: p.flag(false),
  HEARTBEAT_URL: p
    .httpUrl('the address to call while all is well', 'https://hc-ping.com/your-uuid', { query: true })
    .optional(),
  LOG_LEVEL: p.oneOf('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent').prefault('info'),
  LOG_PRETTY: p.flag(process.stdout.isTTY ?? false),
  SHUTDOWN_GRACE: p.timer('25s', 0),
  OTEL_EXPORTER_OTLP_ENDPOINT: p
    .httpUrl('the address of an OpenTelemetry collector', 'http://localhost:4318')
    .optional(),
  OTEL_SERVICE_NAME: p.text('a name').prefault('asset-mirror'),
  OTEL_TRACES_SAMPLER_ARG: p
    .parsed((t) => (/^\d*\.?\d+$/.test(t) && Number(t) <= 1 ? Number(t) : undefined), 'a share from 0 to 1')
    .prefault('1'),
};

export const variableNames: readonly string[] = Object.keys(variables);

/** Variables whose values are never shown. Each may be in a file instead, which `NAME_FILE` names. */
export const secretVariables: ReadonlySet<string> = new Set([
  'LIBRARY_CLIENT_SECRET',
  'DATABASE_URL',
  'REDIS_URL',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'ENCRYPTION_KEYS',
  'SIGNING_KEY',
  'ADMIN_TOKEN',
  'OIDC_CLIENT_SECRET',
  'WEBHOOK_URL',
  'WEBHOOK_SECRET',
  'HEARTBEAT_URL',
]);

/** `secretVariables`, and the token of the verbs that talk to the service. */
const allSecrets: ReadonlySet<string> = new Set([...secretVariables, 'ASSET_MIRROR_TOKEN']);

/** Variables of this environment that are probably misspelled settings. Proxies may be set in lower case. */
export const misspelled = (environment: Environment) =>
  similarNames(
    Object.keys(environment).filter((name) => environment[name]?.trim() && !/^(https?|no|all)_proxy$/.test(name)),
    [...variableNames, ...[...allSecrets].map((name) => `${name}_FILE`), ...otherNames],
  );

/** Variables of other verbs than `start`. */
const otherNames = ['ASSET_MIRROR_URL', 'ASSET_MIRROR_TOKEN', 'LIBRARY_DATABASE_URL', 'ALL_PROXY'];

/** Whether the variable is set, itself or by the name of a file. */
export const isSet = (environment: Environment, name: string) =>
  Boolean(environment[name]?.trim() || environment[`${name}_FILE`]?.trim());

const forBeginners =
  '.env.example in the source is a template with all settings. `demo` needs none: it starts its own library.';

/**
 * Reads the variables of `schema`. An empty value counts as unset, because compose files and charts pass those; spaces and
 * line ends around a value are dropped.
 * @throws ConfigurationError with one sentence for each wrong or missing value
 */
export function readEnvironment<T extends z.ZodRawShape>(
  schema: T,
  environment: Environment,
  alsoRequired: readonly string[] = [],
): z.output<z.ZodObject<T>> {
  const problems = new Map<string, string>();
  const fromFiles = readSecretFiles(Object.keys(schema), environment, problems);
  const given = Object.fromEntries(
    Object.entries({ ...environment, ...fromFiles })
      .map(([name, value]) => [name, value?.trim()] as const)
      .filter(([, value]) => value),
  );
  const result = z.object(schema).safeParse(given);
  const wrong = [
    ...(result.error?.issues.map((issue) => String(issue.path[0])) ?? []),
    ...alsoRequired.filter((name) => given[name] === undefined),
  ].filter((name) => !problems.has(name));
  for (const name of wrong) {
    const other = given[name] === undefined && misspelled(environment).find(({ similar }) => similar === name);
    const issue = result.error?.issues.find(({ path }) => path[0] === name);
    const found = other ? `is not set, but ${other.name} is` : shown(name, given[name]);
    problems.set(name, `${name} ${found}; expected ${partOf(issue) ?? expectedOf(schema[name])}.`);
  }
  if (problems.size > 0 || !result.success) {
    const noLibrary = [...problems.keys()].some((name) => name.startsWith('LIBRARY_') && given[name] === undefined);
    throw new ConfigurationError([...problems.values()], noLibrary ? forBeginners : undefined);
  }
  return result.data;
}

/** The secrets that are in files, as Docker and Kubernetes mount them. Errors go to `problems`, by name. */
function readSecretFiles(names: string[], environment: Environment, problems: Map<string, string>): Environment {
  const values: Record<string, string> = {};
  for (const name of names.filter((it) => allSecrets.has(it))) {
    const file = environment[`${name}_FILE`]?.trim();
    if (!file) continue;
    if (environment[name]?.trim()) problems.set(name, `${name} and ${name}_FILE are both set; expected one of them.`);
    try {
      values[name] = readFileSync(file, 'utf8');
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      problems.set(
        name,
        `${name}_FILE is ${JSON.stringify(file)} (${code}); expected a file that this account can read.`,
      );
    }
  }
  return values;
}

function shown(name: string, value: string | undefined): string {
  if (value === undefined) return 'is not set';
  return allSecrets.has(name)
    ? `is set to something else (${value.length} characters, not shown)`
    : `is ${JSON.stringify(redact(value))}`;
}

/** The text of the schema about what it expects instead of the wrong part; undefined: there is none. */
const partOf = (issue: z.core.$ZodIssue | undefined) =>
  issue?.code === 'custom' && issue.params !== p.noDetail ? issue.message : undefined;

function expectedOf(schema: unknown): string {
  // `prefault` and `optional` wrap the schema that has `expected`.
  for (let s = schema as z.ZodType & { def: { innerType?: z.ZodType } }; s; s = s.def.innerType as typeof s) {
    const expected = s.meta()?.expected;
    if (typeof expected === 'string') return expected;
  }
  return 'something else';
}
