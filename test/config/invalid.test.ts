import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import type { ConfigurationError } from '../../src/floor/errors.ts';
import { type Environment, key, problemOf, problemsOf, required } from './environment.ts';

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
      'S3_CHECKSUMS is "md5"; expected auto, sha256, crc32, md5-etag or none.',
      'SYNC_INTERVAL is "5"; expected a duration with units, such as 30s, 5m or 24h, from 1s to 365 days.',
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
    expect(remedyOf({ ...required, LIBRARY_CLIENT_ID: '' })).toMatch(/\.env\.example.*`demo`/);
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
