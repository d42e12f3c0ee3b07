// Which module may import which. A module also imports itself and the floor, src/floor.
export const modules = {
  config: [[], 'turns the environment into a typed configuration, and knows nothing of what uses it'],
  tracing: [[], 'is optional, and wraps the work of others'],
  source: [['tracing'], 'is the library as the mirror sees it; knows no database, queue or bucket'],
  storage: [['tracing'], 'is a bucket or a directory; knows no library, database or queue'],
  store: [['config'], 'has all SQL of the mirror; knows no library, bucket or queue'],
  oauth: [['store'], 'makes connect links, and keeps the tokens of connections'],
  pacing: [['oauth', 'source', 'storage', 'store'], 'decides how much may be in flight, and when to wait'],
  filters: [['source', 'store'], 'decides which assets a connection skips, and applies that'],
  queue: [['config', 'pacing', 'store', 'tracing'], 'delivers work; does not know what the work is'],
  metrics: [['queue', 'store'], 'counts, and decides nothing'],
  webhooks: [['metrics', 'oauth', 'store'], 'delivers events'],
  sync: [
    ['filters', 'metrics', 'pacing', 'source', 'store', 'tracing'],
    'turns a listing into records; moves no files',
  ],
  mirror: [
    ['filters', 'metrics', 'pacing', 'queue', 'source', 'storage', 'store', 'tracing'],
    'turns one asset into a verified copy, and removes copies; lists nothing',
  ],
  verify: [
    ['mirror', 'queue', 'pacing', 'source', 'storage', 'store', 'sync'],
    'compares library, records and bucket; writes evidence into the bucket, and restores from it',
  ],
  operations: [
    ['filters', 'oauth', 'pacing', 'queue', 'source', 'storage', 'store', 'sync', 'verify'],
    'holds every operator action once, for API, CLI and dashboard',
  ],
  offline: [
    ['config', 'operations', 'storage', 'store', 'verify'],
    'has the commands that work on the bucket without a running service, in a process of their own',
  ],
  http: [['metrics', 'oauth', 'operations', 'queue', 'store'], 'is a thin shell over operations'],
  cli: [
    ['config', 'library', 'operations', 'offline', 'verify'],
    'is a thin shell over the API; only it starts the bundled library',
  ],
  library: [[], 'is the service of the specification, and shares nothing with the mirror but the floor'],
};

/** Only these folders import these libraries, and why. */
const homes = {
  bullmq: ['bullmq', 'queue', 'another queue would be one change'],
  ioredis: ['ioredis', 'queue', 'connections to Redis are opened and closed in one place'],
  'aws-sdk': ['@aws-sdk|@smithy', 'storage/s3', 'the rest knows stores, not S3'],
  sql: ['kysely|pg', 'store|library/database', 'whoever reads a table finds all statements there'],
  fastify: [
    'fastify|@fastify|fastify-type-provider-zod|@bull-board',
    'http|library',
    'operations can be called without HTTP',
  ],
  parquet: ['hyparquet-writer', 'verify', 'only the inventory is written so'],
  openid: ['openid-client', 'http/sign-in', 'only people who sign in need it'],
  opentelemetry: ['@opentelemetry|bullmq-otel', 'tracing', 'tracing is optional'],
};

/** The folders of the store: each may import those before it, so that there are no circles. */
const storeFolders =
  'database embedded events settings operators changes counts transcripts assets companies removals verifications syncs connections drills'.split(
    ' ',
  );

export default {
  forbidden: [
    {
      name: 'no-circular',
      comment: 'Files in a circle can only be understood together.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'floor',
      comment: 'The floor is imported by all and imports no module.',
      severity: 'error',
      from: { path: '^src/floor/' },
      to: { path: '^src/', pathNot: '^src/floor/' },
    },
    ...Object.entries(modules).map(([name, [imports, reason]]) => ({
      name,
      comment: `${name} ${reason}.`,
      severity: 'error',
      from: { path: `^src/${name}/` },
      to: { path: '^src/', pathNot: `^src/(${[name, 'floor', ...imports].join('|')})(/|$)` },
    })),
    ...storeFolders.map((folder, index) => ({
      name: `store/${folder}`,
      comment: `It may import ${storeFolders.slice(0, index).join(', ') || 'no other folder'}, so that there are no circles.`,
      severity: 'error',
      from: { path: `^src/store/${folder}/` },
      to: { path: '^src/store/', pathNot: `^src/store/(${storeFolders.slice(0, index + 1).join('|')})/` },
    })),
    ...Object.entries(homes).map(([name, [packages, places, reason]]) => ({
      name: `home-of-${name}`,
      comment: `Only src/${places} imports ${packages}: ${reason}.`,
      severity: 'error',
      from: { path: '^src/', pathNot: `^src/(${places})` },
      to: { path: `node_modules/(${packages})(/|$)` },
    })),
  ],
  options: { tsPreCompilationDeps: true, doNotFollow: { path: 'node_modules' } },
};
