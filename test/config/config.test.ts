import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { afterAll, describe, expect, it, test } from 'vitest';
import { readClientConfig, readConfig } from '../../src/config/config.ts';
import { secretVariables, variableNames } from '../../src/config/environment.ts';
import { ConfigurationError } from '../../src/floor/errors.ts';

const required = {
  LIBRARY_API_URL: 'https://api.example.com',
  LIBRARY_APP_URL: 'https://app.example.com',
  LIBRARY_CLIENT_ID: 'the id',
  LIBRARY_CLIENT_SECRET: 'the secret',
};
const key = (byte: number) => Buffer.alloc(32, byte);
const minute = 60_000;
const hour = 60 * minute;

type Environment = Record<string, string | undefined>;
const read = (environment: Environment = {}) => readConfig({ ...required, ...environment });

/** The sentences of the error for an environment. */
function problemsOf(environment: Environment, readIt: (environment: Environment) => unknown = readConfig) {
  try {
    readIt(environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    return (error as ConfigurationError).problems;
  }
  throw new Error('it was taken');
}
const problemOf = (name: string, value: string) => {
  const problems = problemsOf({ ...required, [name]: value });
  expect(problems).toHaveLength(1);
  return problems[0]!;
};

describe('the defaults', () => {
  it('each optional variable has its documented default', () => {
    const { instance, ...config } = read();
    expect(config).toEqual({
      library: {
        apiUrl: 'https://api.example.com',
        appUrl: 'https://app.example.com',
        clientId: 'the id',
        clientSecret: 'the secret',
      },
      publicUrl: 'http://localhost:8080',
      returnOrigins: [],
      localUrl: 'http://127.0.0.1:8080',
      host: '127.0.0.1',
      port: 8080,
      metricsPort: undefined,
      metricsTags: [],
      trustProxy: undefined,
      databaseUrl: undefined,
      redisUrl: undefined,
      storage: {
        target: { kind: 'directory', path: resolve('data/mirror') },
        s3: {
          endpoint: undefined,
          region: undefined,
          forcePathStyle: false,
          checksums: 'auto',
          storageClass: undefined,
          objectLock: undefined,
          sse: undefined,
          sseKmsKeyId: undefined,
        },
        keyTemplate: '{companyId}/{projectId}/{assetId}/{filename}',
        contentHash: true,
      },
      dataDir: resolve('data'),
      encryptionKeys: undefined,
      signingKeys: undefined,
      adminToken: undefined,
      signIn: {
        token: true,
        sessionIdle: 2 * hour,
        sessionLifetime: 12 * hour,
        viewerMedia: false,
        grants: [],
        provider: undefined,
      },
      auditRetention: 400 * 24 * hour,
      goneRetention: Number.POSITIVE_INFINITY,
      sync: {
        interval: 5 * minute,
        intervalActive: minute / 2,
        reconcileInterval: 24 * hour,
        overlap: 10 * minute,
        includeTypes: [],
        excludeTypes: [],
      },
      processing: { poll: 30_000, giveUp: 24 * hour },
      transcripts: { mirror: true, search: false, delay: 5 * minute, giveUp: 24 * hour },
      thumbnails: { mirror: true },
      keepVersions: 90 * 24 * hour,
      transfer: {
        concurrency: 128,
        perConnection: 128,
        stallTimeout: 30_000,
        minRate: { bytesPerSecond: 4096, windowMs: 3 * minute },
        bandwidth: undefined,
        allowPrivate: [],
      },
      scrub: { cycle: 90 * 24 * hour, bandwidth: 10 * 2 ** 20 },
      drillInterval: 7 * 24 * hour,
      webhook: {
        url: undefined,
        keys: undefined,
        events: [
          'connection.disconnected',
          'connection.recovered',
          'company.held',
          'sync.failed',
          'bucket.differs',
          'drill.passed',
          'drill.failed',
          'asset.failed',
        ],
        allowPrivate: false,
      },
      heartbeatUrl: undefined,
      log: { level: 'info', pretty: process.stdout.isTTY ?? false },
      tracing: undefined,
      shutdownGrace: 25_000,
      misspelled: [],
    });
  });

  it('each process has its own instance name', () => {
    expect(read().instance).not.toBe(read().instance);
  });
});

describe('the value of each variable', () => {
  type Config = ReturnType<typeof readConfig>;
  const provider = {
    OIDC_ISSUER: 'https://login.example.com/realms/staff',
    OIDC_CLIENT_ID: 'asset-mirror',
    OIDC_CLIENT_SECRET: 'hidden',
    OIDC_SCOPES: 'openid groups',
    OIDC_ROLE_CLAIM: 'realm_access.roles',
    OIDC_ROLES: 'viewer:everyone, admin:urn:x:platform',
  };
  const cases: [string, string, (config: Config) => unknown, unknown][] = [
    ['LIBRARY_API_URL', 'https://h/base/', (c) => c.library.apiUrl, 'https://h/base'],
    ['LIBRARY_APP_URL', 'https://h/', (c) => c.library.appUrl, 'https://h/'],
    ['LIBRARY_CLIENT_ID', 'x', (c) => c.library.clientId, 'x'],
    ['LIBRARY_CLIENT_SECRET', 'x', (c) => c.library.clientSecret, 'x'],
    ['PUBLIC_URL', 'https://m.example.com/mirror/', (c) => c.publicUrl, 'https://m.example.com/mirror'],
    [
      'CONNECT_RETURN_ORIGINS',
      'https://Agency.example/, https://é.example:443,http://localhost:3000',
      (c) => c.returnOrigins,
      ['https://agency.example', 'https://xn--9ca.example', 'http://localhost:3000'],
    ],
    ['HOST', '0.0.0.0', (c) => c.host, '0.0.0.0'],
    ['PORT', '81', (c) => c.port, 81],
    ['METRICS_PORT', '9090', (c) => c.metricsPort, 9090],
    ['METRICS_TAGS', 'client, tier-2', (c) => c.metricsTags, ['client', 'tier-2']],
    ['TRUST_PROXY', '10.0.0.0/8, ::1,loopback', (c) => c.trustProxy, ['10.0.0.0/8', '::1', 'loopback']],
    ['REDIS_URL', 'rediss://u:p@h:1/2', (c) => c.redisUrl, 'rediss://u:p@h:1/2'],
    ['REDIS_URL', 'redis-sentinel://:p%40@a:1,b/3#main', (c) => c.redisUrl, 'redis-sentinel://:p%40@a:1,b/3#main'],
    ['REDIS_URL', 'rediss-cluster://a,b:7000,[::1]', (c) => c.redisUrl, 'rediss-cluster://a,b:7000,[::1]'],
    ['HEARTBEAT_URL', 'https://h/ping?a=1', (c) => c.heartbeatUrl, 'https://h/ping?a=1'],
    ['HTTP_PROXY', 'p:3128', (c) => c.proxies, { http: 'http://p:3128', https: 'http://p:3128', no: '' }],
    ['HTTPS_PROXY', 'http://p', (c) => [c.proxies, c.storage.s3.proxies][1], { http: '', https: 'http://p', no: '' }],
    ['NO_PROXY', '*', (c) => c.proxies, undefined],
    ['STORAGE_URL', 's3://my.bucket/a/b/', (c) => c.storage.target, { kind: 's3', bucket: 'my.bucket', prefix: 'a/b' }],
    ['STORAGE_URL', 's3://bucket', (c) => c.storage.target, { kind: 's3', bucket: 'bucket', prefix: '' }],
    ['STORAGE_URL', 'file:///a%20b/c d', (c) => c.storage.target, { kind: 'directory', path: '/a b/c d' }],
    ['S3_ENDPOINT', 'http://127.0.0.1:9000', (c) => c.storage.s3.endpoint, 'http://127.0.0.1:9000'],
    ['S3_PUBLIC_ENDPOINT', 'none', (c) => c.storage.s3.publicEndpoint, 'none'],
    ['S3_REGION', 'eu-1', (c) => c.storage.s3.region, 'eu-1'],
    ['S3_FORCE_PATH_STYLE', 'TRUE', (c) => c.storage.s3.forcePathStyle, true],
    ['S3_CHECKSUMS', 'md5-etag', (c) => c.storage.s3.checksums, 'md5-etag'],
    [
      'SIGNING_KEY',
      `${key(1).toString('base64')}, ${key(2).toString('base64url')}`,
      (c) => c.signingKeys,
      [key(1), key(2)],
    ],
    ['CONTENT_HASH', 'none', (c) => c.storage.contentHash, false],
    ['S3_STORAGE_CLASS', 'STANDARD_IA', (c) => c.storage.s3.storageClass, 'STANDARD_IA'],
    ['S3_OBJECT_LOCK', 'governance:365d', (c) => c.storage.s3.objectLock, { mode: 'GOVERNANCE', ms: 365 * 24 * hour }],
    ['S3_OBJECT_LOCK', 'COMPLIANCE:1s', (c) => c.storage.s3.objectLock, { mode: 'COMPLIANCE', ms: 1000 }],
    ['GONE_RETENTION', 'Forever', (c) => c.goneRetention, Number.POSITIVE_INFINITY],
    ['GONE_RETENTION', '90d', (c) => c.goneRetention, 90 * 24 * hour],
    ['S3_SSE', 'aws:kms', (c) => c.storage.s3.sse, 'aws:kms'],
    ['S3_SSE_KMS_KEY_ID', 'k', (c) => c.storage.s3.sseKmsKeyId, 'k'],
    [
      'DATA_DIR',
      '/var/lib/x',
      (c) => [c.dataDir, c.storage.target],
      ['/var/lib/x', { kind: 'directory', path: '/var/lib/x/mirror' }],
    ],
    ['ADMIN_TOKEN', 'a-token-of-24-characters', (c) => c.adminToken, 'a-token-of-24-characters'],
    ['TOKEN_SIGN_IN', 'true', (c) => c.signIn.token, true],
    ['SESSION_IDLE', '30m', (c) => c.signIn.sessionIdle, 30 * minute],
    ['SESSION_LIFETIME', '7d', (c) => c.signIn.sessionLifetime, 7 * 24 * hour],
    ['VIEWER_MEDIA', 'true', (c) => c.signIn.viewerMedia, true],
    ['AUDIT_RETENTION', 'forever', (c) => c.auditRetention, Number.POSITIVE_INFINITY],
    [
      'KEY_TEMPLATE',
      'all/{companyId}/{assetId}/{filename}',
      (c) => c.storage.keyTemplate,
      'all/{companyId}/{assetId}/{filename}',
    ],
    ['SYNC_INTERVAL', '90s', (c) => c.sync.interval, 90_000],
    ['SYNC_INTERVAL_ACTIVE', '10s', (c) => c.sync.intervalActive, 10_000],
    ['RECONCILE_INTERVAL', '7d', (c) => c.sync.reconcileInterval, 7 * 24 * hour],
    ['CURSOR_OVERLAP', '0s', (c) => c.sync.overlap, 0],
    ['PROCESSING_POLL', '1s', (c) => c.processing.poll, 1000],
    ['PROCESSING_GIVE_UP', '30d', (c) => c.processing.giveUp, 30 * 24 * hour],
    ['TRANSCRIPT_DELAY', '1h30m', (c) => c.transcripts.delay, 90 * minute],
    ['TRANSCRIPT_GIVE_UP', '2h', (c) => c.transcripts.giveUp, 2 * hour],
    ['TRANSFER_CONCURRENCY', '16', (c) => c.transfer.concurrency, 16],
    ['CONNECTION_CONCURRENCY', '1', (c) => c.transfer.perConnection, 1],
    ['TRANSFER_STALL_TIMEOUT', '500ms', (c) => c.transfer.stallTimeout, 500],
    ['SCRUB_CYCLE', '30d', (c) => c.scrub.cycle, 30 * 86_400_000],
    ['SCRUB_CYCLE', 'off', (c) => c.scrub.cycle, undefined],
    ['DRILL_INTERVAL', '30d', (c) => c.drillInterval, 30 * 86_400_000],
    ['DRILL_INTERVAL', 'off', (c) => c.drillInterval, undefined],
    ['SCRUB_BANDWIDTH', '1MB/s', (c) => c.scrub.bandwidth, 1e6],
    ['TRANSFER_MIN_RATE', '1kB/s', (c) => c.transfer.minRate?.bytesPerSecond, 1000],
    ['TRANSFER_MIN_RATE', 'off', (c) => c.transfer.minRate, undefined],
    ['TRANSFER_MIN_RATE_WINDOW', '10m', (c) => c.transfer.minRate?.windowMs, 10 * minute],
    ['BANDWIDTH_LIMIT', '50MiB/s', (c) => c.transfer.bandwidth, 50 * 2 ** 20],
    ['BANDWIDTH_LIMIT', 'off', (c) => c.transfer.bandwidth, 'unlimited'],
    [
      'BANDWIDTH_LIMIT',
      'Europe/Berlin  Mon-Fri 8:00-18:00 10 MiB/s,else off',
      (c) => c.transfer.bandwidth,
      'Europe/Berlin Mon-Fri 8:00-18:00 10 MiB/s,else off',
    ],
    ['DOWNLOAD_ALLOW_PRIVATE', 'TRUE', (c) => c.transfer.allowPrivate, true],
    ['DOWNLOAD_ALLOW_PRIVATE', 'no', (c) => c.transfer.allowPrivate, []],
    ['DOWNLOAD_ALLOW_PRIVATE', 'CDN.internal, [::1]', (c) => c.transfer.allowPrivate, ['cdn.internal', '::1']],
    ['INCLUDE_ASSET_TYPES', ' videos, brand assets ,', (c) => c.sync.includeTypes, ['videos', 'brand assets']],
    ['EXCLUDE_ASSET_TYPES', 'audio', (c) => c.sync.excludeTypes, ['audio']],
    ['MIRROR_THUMBNAILS', 'no', (c) => c.thumbnails.mirror, false],
    ['KEEP_VERSIONS', '30d', (c) => c.keepVersions, 30 * 24 * hour],
    ['KEEP_VERSIONS', 'all', (c) => c.keepVersions, Number.POSITIVE_INFINITY],
    ['KEEP_VERSIONS', 'none', (c) => c.keepVersions, 0],
    ['MIRROR_TRANSCRIPTS', '0', (c) => c.transcripts.mirror, false],
    ['SEARCH_TRANSCRIPTS', 'yes', (c) => c.transcripts.search, true],
    ['WEBHOOK_EVENTS', 'asset.mirrored , sync.failed', (c) => c.webhook.events, ['asset.mirrored', 'sync.failed']],
    ['WEBHOOK_ALLOW_PRIVATE', 'true', (c) => c.webhook.allowPrivate, true],
    ['LOG_LEVEL', 'debug', (c) => c.log.level, 'debug'],
    ['LOG_PRETTY', 'yes', (c) => c.log.pretty, true],
    ['SHUTDOWN_GRACE', '0s', (c) => c.shutdownGrace, 0],
    [
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      'http://collector:4318',
      (c) => c.tracing,
      { serviceName: 'asset-mirror', ratio: 1 },
    ],
  ];
  for (const [name, value, of, expected] of cases) {
    it(`the configuration reads ${name}=${value}`, () => expect(of(read({ [name]: value }))).toEqual(expected));
  }

  it('ENCRYPTION_KEYS is read in base64 or base64url, in order', () => {
    const keys = [key(251), key(255), randomBytes(32)];
    const text = `${keys[0]!.toString('base64')} , ${keys[1]!.toString('base64url')},${keys[2]!.toString('base64')}`;
    expect(read({ ENCRYPTION_KEYS: text }).encryptionKeys).toEqual(keys);
  });

  it('DATABASE_URL makes ENCRYPTION_KEYS and ADMIN_TOKEN required, because processes share them', () => {
    const database = { DATABASE_URL: 'postgresql://u:p@h/d' };
    expect(problemsOf({ ...required, ...database }).map((problem) => problem.split(' ')[0])).toEqual([
      'ENCRYPTION_KEYS',
      'ADMIN_TOKEN',
    ]);
    const config = read({
      ...database,
      ENCRYPTION_KEYS: key(1).toString('base64'),
      ADMIN_TOKEN: 'a-token-of-24-characters',
    });
    expect(config.databaseUrl).toBe('postgresql://u:p@h/d');
  });

  it('WEBHOOK_URL makes WEBHOOK_SECRET required: one or more keys in base64', () => {
    const url = 'https://h/hook?key=1';
    expect(problemsOf({ ...required, WEBHOOK_URL: url })).toEqual([
      expect.stringMatching(/^WEBHOOK_SECRET is not set; expected whsec_ and 24 to 64 bytes in base64/),
    ]);
    const keys = [key(7), randomBytes(24)];
    const text = `whsec_${keys[0]!.toString('base64')}, ${keys[1]!.toString('base64')}`;
    expect(read({ WEBHOOK_URL: url, WEBHOOK_SECRET: text }).webhook).toMatchObject({ url, keys });
    for (const wrong of [
      'x',
      `whsec_${randomBytes(23).toString('base64')}`,
      `${text},`,
      'a secret of my own, and long',
    ]) {
      expect(problemsOf({ ...required, WEBHOOK_URL: url, WEBHOOK_SECRET: wrong })).toHaveLength(1);
    }
  });

  it('an OpenID provider needs its client and the roles, and without a token there must be one', () => {
    const grants = [
      { role: 'viewer', value: 'everyone' },
      { role: 'admin', value: 'urn:x:platform' },
    ];
    expect(read(provider).signIn).toMatchObject({
      grants,
      provider: {
        issuer: 'https://login.example.com/realms/staff',
        clientId: 'asset-mirror',
        clientSecret: 'hidden',
        scopes: 'openid groups',
        roleClaim: 'realm_access.roles',
        grants,
      },
    });
    const names = (problems: readonly string[]) => problems.map((problem) => problem.split(' ', 1)[0]);
    expect(names(problemsOf({ ...required, OIDC_ISSUER: provider.OIDC_ISSUER }))).toEqual([
      'OIDC_CLIENT_ID',
      'OIDC_ROLES',
      'OIDC_CLIENT_SECRET',
    ]);
    expect(names(problemsOf({ ...required, TOKEN_SIGN_IN: 'no' }))).toEqual([
      'OIDC_ISSUER',
      'OIDC_CLIENT_ID',
      'OIDC_ROLES',
      'OIDC_CLIENT_SECRET',
    ]);
    for (const wrong of [
      { OIDC_ISSUER: 'http://login.example.com' },
      { OIDC_ISSUER: 'https://login.example.com/?realm=1' },
      { OIDC_SCOPES: 'profile email' },
      { OIDC_ROLES: 'root:platform' },
      { OIDC_ROLES: 'admin' },
      { OIDC_ROLES: 'admin: ' },
    ]) {
      expect(names(problemsOf({ ...required, ...provider, ...wrong }))).toEqual(Object.keys(wrong));
    }
  });

  it('OTEL_SERVICE_NAME and OTEL_TRACES_SAMPLER_ARG are read if a collector is set', () => {
    const more = { OTEL_SERVICE_NAME: 'mirror', OTEL_TRACES_SAMPLER_ARG: '0.25' };
    expect(read(more).tracing).toBeUndefined();
    expect(read({ ...more, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c' }).tracing).toEqual({
      serviceName: 'mirror',
      ratio: 0.25,
    });
  });

  it('this test has a value for each variable', () => {
    const apart = ['ENCRYPTION_KEYS', 'DATABASE_URL', 'WEBHOOK_URL', 'WEBHOOK_SECRET'];
    const traces = ['OTEL_SERVICE_NAME', 'OTEL_TRACES_SAMPLER_ARG'];
    const tested = new Set([...cases.map(([name]) => name), ...apart, ...traces, ...Object.keys(provider)]);
    expect([...tested].sort()).toEqual([...variableNames].sort());
  });
});

test.each([
  [{ PORT: '8086' }, 'http://localhost:8086'],
  [{ HOST: '0.0.0.0' }, 'http://localhost:8080'],
  [{ HOST: '::' }, 'http://localhost:8080'],
  [{ HOST: '::1', PORT: '81' }, 'http://localhost:81'],
  [{ HOST: '192.0.2.7', PORT: '81' }, 'http://192.0.2.7:81'],
  [{ HOST: '2001:db8::7' }, 'http://[2001:db8::7]:8080'],
  [{ PORT: '0', PUBLIC_URL: 'https://m.example.com' }, 'https://m.example.com'],
])('PUBLIC_URL follows HOST and PORT unless it is set (%o)', (environment, expected) => {
  expect(read(environment).publicUrl).toBe(expected);
});

test('PUBLIC_URL is required if the port is any free one', () => {
  expect(problemsOf({ ...required, PORT: '0' })).toEqual([
    'PUBLIC_URL is not set; expected the address at which people reach this service, such as https://mirror.example.com, without user and password.',
  ]);
});

describe('a value', () => {
  it('an empty value, or one of spaces, counts as not set', () => {
    const nothing = Object.fromEntries(variableNames.map((name) => [name, name.length % 2 ? '' : ' \n']));
    const { instance: _, ...config } = readConfig({ ...nothing, ...required });
    const { instance: __, ...expected } = read();
    expect(config).toEqual(expected);
    expect(problemsOf({ ...required, LIBRARY_CLIENT_ID: '' })[0]).toMatch(/^LIBRARY_CLIENT_ID is not set;/);
  });

  it('a value loses the line end of the file it comes from', () => {
    expect(read({ LIBRARY_CLIENT_SECRET: 'the secret\n' }).library.clientSecret).toBe('the secret');
    expect(read({ LIBRARY_API_URL: ' https://api.example.com ' }).library.apiUrl).toBe('https://api.example.com');
  });

  it('unknown variables are ignored', () => {
    expect(read({ LIBRARY_API_URI: 'x', PATH: '/bin' }).port).toBe(8080);
  });

  it('a variable with a name similar to a setting is reported', () => {
    const others = ['PATH', 'HOME', 'HOSTNAME', 'PORTS', 'LOGNAME', 'http_proxy', 'AWS_REGION', 'OTEL_TRACES_SAMPLER'];
    const ours = ['ASSET_MIRROR_URL', 'LIBRARY_DATABASE_URL', 'NO_PROXY', 'S3_REGION'];
    const names = [
      'SYNC_INTERVALL',
      'LIBRARY_API_URI',
      'LIBRARY_APP_URI',
      's3_endpoint',
      'ADMIN_TOKENS_FILE',
      'WEBHOK_SECRETS',
      ...others,
    ];
    const environment = Object.fromEntries(names.map((name) => [name, 'x']));
    expect(read({ ...Object.fromEntries(ours.map((name) => [name, 'x'])), ...environment }).misspelled).toEqual([
      { name: 'SYNC_INTERVALL', similar: 'SYNC_INTERVAL' },
      { name: 'LIBRARY_API_URI', similar: 'LIBRARY_API_URL' },
      { name: 'LIBRARY_APP_URI', similar: 'LIBRARY_APP_URL' },
      { name: 's3_endpoint', similar: 'S3_ENDPOINT' },
      { name: 'ADMIN_TOKENS_FILE', similar: 'ADMIN_TOKEN_FILE' },
      { name: 'WEBHOK_SECRETS', similar: 'WEBHOOK_SECRET' },
    ]);
    const { LIBRARY_API_URL: LIBRARY_API_URI, ...rest } = required;
    expect(problemsOf({ ...rest, LIBRARY_API_URI })).toEqual([
      expect.stringMatching(/^LIBRARY_API_URL is not set, but LIBRARY_API_URI is; expected the API address/),
    ]);
  });
});

describe('invalid settings', () => {
  it('all invalid settings are reported at once, each with its name, its value and what is expected', () => {
    expect(
      problemsOf({ LIBRARY_API_URL: 'api.example.com', PORT: '80800', SYNC_INTERVAL: '5', S3_CHECKSUMS: 'md5' }),
    ).toEqual([
      'LIBRARY_API_URL is "api.example.com"; expected the API address of the Asset Library Service, such as https://library.example.com, without user and password.',
      'LIBRARY_APP_URL is not set; expected the sign-in address of the Asset Library Service, such as https://library.example.com, without user and password.',
      'LIBRARY_CLIENT_ID is not set; expected the client_id of the app registration.',
      'LIBRARY_CLIENT_SECRET is not set; expected the client_secret of the app registration.',
      'PORT is "80800"; expected a port number from 0 to 65535 (0 takes any free one).',
      'S3_CHECKSUMS is "md5"; expected auto, sha256, crc32, crc64nvme, md5-etag or none.',
      'SYNC_INTERVAL is "5"; expected a duration with units, such as 30s, 5m or 24h, from 100ms to 365 days.',
    ]);
  });

  const wrong: Record<string, string[]> = {
    LIBRARY_API_URL: ['ftp://h', 'https://u:p@h', 'https://u@h', 'https://h?x=1', 'https://h#x', 'https://', 'h'],
    LIBRARY_APP_URL: ['h'],
    PUBLIC_URL: ['localhost:8080'],
    CONNECT_RETURN_ORIGINS: [
      'agency.example',
      'http://agency.example',
      'https://agency.example/done',
      'https://*.agency.example',
      'https://user@agency.example',
      'https://a.example,,https://b.example',
      'http://localhost.evil.com',
      'javascript:alert(1)',
    ],
    PORT: ['-1', '65536', '80a', '8080.5'],
    METRICS_TAGS: ['Client', 'client=acme', 'a,,b', `a${'b'.repeat(31)}`],
    TRUST_PROXY: ['true', '1', '10.0.0.0/33', '10.0.0.1,', 'proxy.example.com', '::1/129', '10.0.0.0/8/8'],
    DATABASE_URL: ['mysql://h/d', 'h'],
    REDIS_URL: [
      'http://h',
      'h:6379',
      'redis-sentinel://h',
      'redis-sentinel://h?password=p#main',
      'redis-cluster://h#main',
      'redis-cluster://h/1',
      'redis-cluster://h,',
      'redis-cluster://h:0',
    ],
    HTTP_PROXY: ['socks5://h:1080', 'http://'],
    HTTPS_PROXY: ['ftp://h'],
    STORAGE_URL: [
      '/data',
      's3://',
      's3://b/p',
      's3://ab',
      's3://bucket/../c',
      's3://bucket/.',
      's3://a:b@bucket',
      'gs://bucket',
      'file://',
    ],
    S3_ENDPOINT: ['h:9000'],
    S3_PUBLIC_ENDPOINT: ['off', 'h:9000', 'https://user:secret@h'],
    S3_FORCE_PATH_STYLE: ['maybe', '2'],
    S3_CHECKSUMS: ['sha1'],
    CONTENT_HASH: ['md5'],
    S3_SSE: ['yes'],
    SIGNING_KEY: ['short', randomBytes(31).toString('base64')],
    ENCRYPTION_KEYS: [
      'short',
      key(1).toString('hex'),
      `${key(1).toString('base64')},`,
      randomBytes(31).toString('base64'),
    ],
    KEY_TEMPLATE: [
      '{companyId}/{filename}',
      '{assetId}/{filename}',
      '{companyId}{projectId}/{assetId}/{filename}',
      '{companyId}/{assetId}/{filename}.x',
      '{companyId}/a-{assetId}/{filename}',
      '{companyId}/{assetId}//{filename}',
      '../{companyId}/{assetId}/{filename}',
      '{companyId}/{assetID}/{assetId}/{filename}',
      '_mirror/{companyId}/{assetId}/{filename}',
      '/{companyId}/{assetId}/{filename}',
      '{companyId}/{filename}/{assetId}',
    ],
    SYNC_INTERVAL: ['0s', '-1m', 'often'],
    SYNC_INTERVAL_ACTIVE: ['0s', 'often'],
    RECONCILE_INTERVAL: ['24'],
    CURSOR_OVERLAP: ['ten minutes'],
    PROCESSING_POLL: ['0s'],
    PROCESSING_GIVE_UP: ['99999w'],
    TRANSCRIPT_DELAY: ['x'],
    TRANSCRIPT_GIVE_UP: ['0h'],
    TRANSFER_CONCURRENCY: ['0', '1001', '1.5', 'all'],
    CONNECTION_CONCURRENCY: ['0'],
    TRANSFER_STALL_TIMEOUT: ['0s', '25d'],
    SCRUB_CYCLE: ['90', '1ms', 'no', '4000d'],
    DRILL_INTERVAL: ['7', '1ms', 'no', '4000d'],
    SCRUB_BANDWIDTH: ['10MiB', '0B/s', 'off'],
    TRANSFER_MIN_RATE: ['4KiB', '0B/s', 'no'],
    TRANSFER_MIN_RATE_WINDOW: ['0s', '25d'],
    BANDWIDTH_LIMIT: ['50MiB', '0B/s', '50/s', 'fast', 'Mon-Fri 08:00-18:00, else 5MiB/s'],
    DOWNLOAD_ALLOW_PRIVATE: ['http://cdn.internal', 'cdn.internal:8080', '10.0.0.0/8', 'a,,b'],
    KEEP_VERSIONS: ['90', '0d', 'forever'],
    MIRROR_THUMBNAILS: ['on and off'],
    MIRROR_TRANSCRIPTS: ['-'],
    SEARCH_TRANSCRIPTS: ['on'],
    WEBHOOK_URL: ['h'],
    HEARTBEAT_URL: ['h'],
    WEBHOOK_EVENTS: ['asset.mirrored,asset.seen', ','],
    WEBHOOK_ALLOW_PRIVATE: ['loopback'],
    LOG_LEVEL: ['verbose'],
    LOG_PRETTY: ['very'],
    SHUTDOWN_GRACE: ['soon', '30d'],
    OTEL_EXPORTER_OTLP_ENDPOINT: ['collector:4318'],
    OTEL_TRACES_SAMPLER_ARG: ['1.5', 'all', '-1'],
    ADMIN_TOKEN: ['a', 'one-short-of-24-letters'],
  };
  it('a wrong bucket in STORAGE_URL is reported with the rule for names of buckets', () => {
    expect(problemOf('STORAGE_URL', 's3://b/p')).toMatch(/^STORAGE_URL is "s3:\/\/b\/p"; expected .* 3 to 63 letters/);
  });

  it('a wrong part of a timetable in BANDWIDTH_LIMIT is reported', () => {
    expect(problemOf('BANDWIDTH_LIMIT', 'Mon-Fri 8-18 5MiB/s')).toBe(
      'BANDWIDTH_LIMIT is "Mon-Fri 8-18 5MiB/s"; expected two times such as 08:00-18:00 in place of "8-18".',
    );
  });

  for (const [name, values] of Object.entries(wrong)) {
    it(`a wrong value of ${name} is reported by name`, () => {
      for (const value of values) {
        const secret = key(1).toString('base64');
        const together = {
          ...(name === 'DATABASE_URL' && { ENCRYPTION_KEYS: secret, ADMIN_TOKEN: secret }),
          ...(name === 'WEBHOOK_URL' && { WEBHOOK_SECRET: secret }),
        };
        const problems = problemsOf({ ...required, ...together, [name]: value });
        expect(problems, value).toHaveLength(1);
        expect(problems[0]).toMatch(new RegExp(`^${name} is .+; expected .+\\.$`));
      }
    });
  }

  it('missing settings of the library are reported with the template and the demo', () => {
    const remedyOf = (environment: Environment) => {
      try {
        return readConfig(environment) && 'none';
      } catch (error) {
        return (error as ConfigurationError).remedy;
      }
    };
    expect(remedyOf({ ...required, LIBRARY_CLIENT_ID: '' })).toMatch(/\.env\.example.*`npm run demo`/);
    expect(remedyOf({ ...required, LIBRARY_API_URL: 'nope' })).toBeUndefined();
    expect(remedyOf({ ...required, PORT: 'abc' })).toBeUndefined();
  });

  it('a proxy variable in lower case takes precedence over one in upper case', () => {
    const config = readConfig({ ...required, HTTPS_PROXY: 'http://upper', https_proxy: 'http://lower', no_proxy: 'a' });
    expect(config.proxies).toEqual({ http: '', https: 'http://lower', no: 'a' });
  });

  it('an error about a setting never shows a secret', () => {
    const secrets: Environment = {
      DATABASE_URL: 'mysql://me:hunter2@h/d',
      REDIS_URL: 'http://:hunter2@h',
      HTTPS_PROXY: 'socks5://me:hunter2@h',
      ENCRYPTION_KEYS: `hunter2,${key(7).toString('base64')}`,
      WEBHOOK_URL: 'hooks.example.com/hunter2',
    };
    const problems = problemsOf({ ...required, ...secrets, ADMIN_TOKEN: 'hunter2', WEBHOOK_SECRET: 'hunter2' });
    expect(problems).toHaveLength(7);
    expect(problems.join()).not.toContain('hunter2');
    expect(problems.join()).not.toContain(key(7).toString('base64'));
    expect(problems[0]).toMatch(
      /^DATABASE_URL is set to something else \(22 characters, not shown\); expected postgres:/,
    );
  });

  it('an error about an address never shows the secrets in it', () => {
    expect(problemOf('LIBRARY_API_URL', 'ftp://me:hunter2@h')).not.toContain('hunter2');
    expect(problemOf('LIBRARY_APP_URL', 'https://h/?token=hunter2')).not.toContain('hunter2');
    expect(problemOf('STORAGE_URL', 's3://id:hunter2@bucket')).not.toContain('hunter2');
  });
});

describe('secrets in files', () => {
  const directory = mkdtempSync(join(tmpdir(), 'asset-mirror-secrets-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  const file = (text: string) => {
    const path = join(directory, randomBytes(8).toString('hex'));
    writeFileSync(path, text);
    return path;
  };
  const secrets = {
    DATABASE_URL: 'postgres://u:p@h/d',
    REDIS_URL: 'redis://:p@h',
    LIBRARY_CLIENT_SECRET: 'the secret',
    ENCRYPTION_KEYS: key(1).toString('base64'),
    SIGNING_KEY: key(3).toString('base64'),
    ADMIN_TOKEN: 'a-token-of-24-characters',
    HTTP_PROXY: 'http://p',
    HTTPS_PROXY: 'http://u:p@p',
    WEBHOOK_URL: 'https://h/hook',
    WEBHOOK_SECRET: `whsec_${key(2).toString('base64')}`,
    HEARTBEAT_URL: 'https://h/ping',
    OIDC_CLIENT_SECRET: 'the client secret',
  };

  it('a secret in a file is read as if its variable had it, without the line end', () => {
    expect(Object.keys(secrets).sort()).toEqual([...secretVariables].sort());
    const inFiles = Object.entries(secrets).map(([name, value]) => [`${name}_FILE`, `${file(`${value}\n`)}`]);
    const { LIBRARY_CLIENT_SECRET: _, ...rest } = required;
    const others = { ...rest, OIDC_ISSUER: 'https://h', OIDC_CLIENT_ID: 'x', OIDC_ROLES: 'admin:x' };
    const { instance: __, ...config } = readConfig({ ...others, ...Object.fromEntries(inFiles) }, { embedded: false });
    const { instance: ___, ...expected } = readConfig({ ...others, ...secrets }, { embedded: false });
    expect(config).toEqual(expected);
  });

  it('a secret in a file makes the same other variables required', () => {
    const DATABASE_URL_FILE = file(secrets.DATABASE_URL);
    expect(problemsOf({ ...required, DATABASE_URL_FILE }).map((problem) => problem.split(' ', 1)[0])).toEqual([
      'ENCRYPTION_KEYS',
      'ADMIN_TOKEN',
    ]);
  });

  it('commands that talk to a service read the secret files that they need, and no others', () => {
    const environment = { ADMIN_TOKEN_FILE: file(secrets.ADMIN_TOKEN), DATABASE_URL_FILE: '/none' };
    expect(readClientConfig(environment).token).toBe(secrets.ADMIN_TOKEN);
    const ASSET_MIRROR_TOKEN_FILE = file('am_token');
    expect(readClientConfig({ ...environment, ASSET_MIRROR_TOKEN_FILE }).token).toBe('am_token');
  });

  it('a secret file that is unreadable, wrong or set twice is reported without its content', () => {
    const [ADMIN_TOKEN_FILE, REDIS_URL_FILE] = [file('hunter2'), file('redis://h')];
    const LIBRARY_CLIENT_SECRET_FILE = join(directory, 'none');
    const { LIBRARY_CLIENT_SECRET: _, ...others } = required;
    const more = { ADMIN_TOKEN_FILE, REDIS_URL_FILE, REDIS_URL: 'redis://h', LIBRARY_CLIENT_SECRET_FILE, PORT: 'x' };
    expect(problemsOf({ ...others, ...more })).toEqual([
      `LIBRARY_CLIENT_SECRET_FILE is ${JSON.stringify(LIBRARY_CLIENT_SECRET_FILE)} (ENOENT); expected a file that this account can read.`,
      'REDIS_URL and REDIS_URL_FILE are both set; expected one of them.',
      expect.stringMatching(/^PORT is "x"/),
      expect.stringMatching(/^ADMIN_TOKEN is set to something else \(7 characters, not shown\)/),
    ]);
  });

  it('a file is not read for a variable that is no secret', () => {
    expect(problemsOf({ ...required, LIBRARY_CLIENT_ID: '', LIBRARY_CLIENT_ID_FILE: file('x') })).toHaveLength(1);
  });
});

describe('a command that talks to a running service', () => {
  it('a command finds the service at its default address without any setting', () => {
    expect(readClientConfig({})).toEqual({
      url: 'http://127.0.0.1:8080',
      adminToken: undefined,
      dataDir: resolve('data'),
    });
  });

  it('a command uses ASSET_MIRROR_URL, or else HOST and PORT', () => {
    expect(readClientConfig({ ASSET_MIRROR_URL: 'https://m.example.com/' }).url).toBe('https://m.example.com');
    expect(readClientConfig({ HOST: '0.0.0.0', PORT: '81' }).url).toBe('http://127.0.0.1:81');
    expect(readClientConfig({ HOST: '::', PORT: '81' }).url).toBe('http://[::1]:81');
  });

  it('a command refuses an invalid address or port', () => {
    expect(problemsOf({ ASSET_MIRROR_URL: 'm', PORT: 'x' }, readClientConfig)).toHaveLength(2);
  });
});

describe('.env.example', () => {
  const text = readFileSync(new URL('../../.env.example', import.meta.url), 'utf8');
  const named = [...text.matchAll(/^#?([A-Z][A-Z0-9_]+)=(.*)$/gm)].map(([, name, value]) => ({ name, value: value! }));

  it('.env.example names each variable once, and no others', () => {
    expect(named.map(({ name }) => name).sort()).toEqual(
      [...variableNames, 'ASSET_MIRROR_TOKEN', 'ASSET_MIRROR_URL'].sort(),
    );
  });

  it('.env.example leaves only the required variables empty', () => {
    expect(Object.keys(parseEnv(text)).sort()).toEqual(Object.keys(required).sort());
    expect(Object.values(parseEnv(text))).toEqual(['', '', '', '']);
  });

  it('.env.example shows the defaults', () => {
    const { instance: _, ...config } = readConfig({
      ...Object.fromEntries(named.map(({ name, value }) => [name, value])),
      ...required,
    });
    const { instance: __, ...expected } = read();
    expect(config).toEqual(expected);
    const shown = named.filter(({ value }) => value !== '').map(({ name }) => name);
    // These have no default, or one that depends on other settings.
    const without = [
      'ADMIN_TOKEN',
      'ENCRYPTION_KEYS',
      'SIGNING_KEY',
      'DATABASE_URL',
      'REDIS_URL',
      'STORAGE_URL',
      'S3_ENDPOINT',
      'S3_PUBLIC_ENDPOINT',
      'S3_REGION',
    ];
    const more = [
      'S3_STORAGE_CLASS',
      'S3_OBJECT_LOCK',
      'S3_SSE',
      'S3_SSE_KMS_KEY_ID',
      'INCLUDE_ASSET_TYPES',
      'EXCLUDE_ASSET_TYPES',
    ];
    const rest = [
      'HTTP_PROXY',
      'HTTPS_PROXY',
      'NO_PROXY',
      'METRICS_PORT',
      'METRICS_TAGS',
      'CONNECT_RETURN_ORIGINS',
      'TRUST_PROXY',
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      'BANDWIDTH_LIMIT',
      'WEBHOOK_URL',
      'WEBHOOK_SECRET',
      'HEARTBEAT_URL',
      'OIDC_ISSUER',
      'OIDC_CLIENT_ID',
      'OIDC_CLIENT_SECRET',
      'OIDC_ROLES',
      'LOG_PRETTY',
    ];
    const unset = [...without, ...more, ...rest, ...Object.keys(required)];
    expect(shown.sort()).toEqual(variableNames.filter((name) => !unset.includes(name)).sort());
  });
});

describe('docs/reference/configuration.md', () => {
  const text = readFileSync(new URL('../../docs/reference/configuration.md', import.meta.url), 'utf8');
  const rows = [...text.matchAll(/^- `([A-Z][A-Z0-9_]+)` \((.*?)\): /gm)].map(([, name, value]) => ({
    name: name!,
    value: value!,
  }));

  it('docs/reference/configuration.md names each secret that can be in a file', () => {
    const [paragraph] = /- A secret can be in a file[\s\S]*?\n- /.exec(text)!;
    for (const name of secretVariables) expect(paragraph).toContain(`\`${name}\``);
  });

  it('docs/reference/configuration.md describes each variable once, and no others', () => {
    expect(rows.map(({ name }) => name).sort()).toEqual(
      [...variableNames, 'ASSET_MIRROR_TOKEN', 'ASSET_MIRROR_URL'].sort(),
    );
  });

  it('docs/reference/configuration.md shows the defaults of .env.example', () => {
    const example = readFileSync(new URL('../../.env.example', import.meta.url), 'utf8');
    // WEBHOOK_EVENTS is a long list, which the page describes in words.
    const defaults = [...example.matchAll(/^#([A-Z][A-Z0-9_]+)=(.+)$/gm)]
      .map(([, name, value]) => ({ name: name!, value: `\`${value}\`` }))
      .filter(({ name }) => name !== 'WEBHOOK_EVENTS');
    expect(rows).toEqual(expect.arrayContaining(defaults));
  });
});
