import { randomBytes } from 'node:crypto';
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { variableNames } from '../../src/config/environment.ts';
import { hour, key, minute, problemsOf, read, required } from './environment.ts';

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
    ['INCLUDE_ASSET_TYPES', ' videos, brand assets ,', (c) => c.filters.includeTypes, ['videos', 'brand assets']],
    ['EXCLUDE_ASSET_TYPES', 'audio', (c) => c.filters.excludeTypes, ['audio']],
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
