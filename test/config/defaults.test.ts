import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { hour, minute, read } from './environment.ts';

/** The configuration with only the required variables, but for the instance name. */
const documented = {
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
  },
  filters: { includeTypes: [], excludeTypes: [] },
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
      'company.gained',
      'company.lost',
      'company.held',
      'sync.failed',
      'bucket.differs',
      'drill.passed',
      'drill.failed',
      'asset.failed',
      'asset.damaged',
    ],
    allowPrivate: false,
  },
  heartbeatUrl: undefined,
  log: { level: 'info', pretty: process.stdout.isTTY ?? false },
  tracing: undefined,
  shutdownGrace: 25_000,
  misspelled: [],
};

describe('the defaults', () => {
  it('each optional variable has its documented default', () => {
    const { instance, ...config } = read();
    expect(config).toEqual(documented);
  });

  it('each process has its own instance name', () => {
    expect(read().instance).not.toBe(read().instance);
  });
});
