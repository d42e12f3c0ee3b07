import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { createLog } from '../../src/floor/log.ts';
import { startEmbeddedPostgres } from '../../src/store/embedded/embedded.ts';
import { freePort } from '../support/ports.ts';
import { createContent } from './content.ts';
import { openLibrary } from './library.ts';
import { clientId, clientSecret, createApi, main, startMirror } from './mirror.ts';
import { companies, type Options, projects, users } from './plan.ts';
import { createRandom } from './prng.ts';
import { answers, createPrograms, type Programs } from './programs.ts';
import { startProxy, type Trouble } from './proxy.ts';
import { createRecords } from './records.ts';
import { fillDisk, openDisk, openS3 } from './stores.ts';

export type World = Awaited<ReturnType<typeof openWorld>>;

/** Everything as processes of their own, in one directory. With a directory as the store, that is a disk of its own. */
export async function openWorld(options: Options & { directory: string; hasDisk: boolean }) {
  const { directory } = options;
  await using opening = new AsyncDisposableStack();
  const all = createPrograms(directory, opening);
  const { programs } = all;
  await mkdir(join(directory, 'logs'));

  const [databaseUrl, libraryDatabaseUrl] = await startDatabases(all);
  const redisPort = await startRedis(all);
  const random = createRandom(`${options.seed} proxies`).next;
  const webPort = await freePort();
  const publicUrl = `http://127.0.0.1:${webPort}`;
  const { library, libraryProxy, content } = await startLibrary(all, { random, publicUrl, libraryDatabaseUrl });
  const store = options.store === 's3' ? await openS3(all, random) : await openDisk(all, options.hasDisk);
  const libraryUrl = libraryProxy.url;
  await startMirror(all, { databaseUrl, redisPort, webPort, publicUrl, libraryUrl, storage: store.environment });

  const stack = opening.move();
  return {
    options,
    directory,
    programs,
    content,
    library,
    libraryProxy,
    s3Proxy: store.proxy,
    bucket: store.client,
    disk: join(directory, 'disk/mirror'),
    ...createApi(publicUrl),
    ...createRecords(databaseUrl, join(directory, 'records-db/postgres/postmaster.pid')),
    /** Grants that the user revoked, or that a fault revoked. */
    endedByUs: [] as { user: string; at: number }[],

    s3Trouble: (trouble: Trouble) => store.proxy!.trouble(trouble),
    async killS3() {
      await programs.s3!.end('SIGKILL');
      return () => programs.s3!.start();
    },
    fillDisk: () => fillDisk(directory),

    async flushRedis(): Promise<void> {
      const redis = new Redis(redisPort, { lazyConnect: true, retryStrategy: null });
      redis.on('error', () => {});
      try {
        await redis.connect();
        await redis.flushall();
      } finally {
        redis.disconnect();
      }
    },

    close: () => stack.disposeAsync(),
  };
}

/** The database of the mirror, and that of the library. */
async function startDatabases({ directory, opening }: Programs): Promise<[string, string]> {
  const log = createLog({ level: 'silent', pretty: false });
  const start = async (name: string) => {
    const database = await startEmbeddedPostgres({ directory: join(directory, `${name}-db`), log });
    opening.defer(() => database.stop());
    return database.url;
  };
  return Promise.all([start('records'), start('library')]);
}

/** Returns the port. */
async function startRedis({ directory, program }: Programs): Promise<number> {
  const redisPort = await freePort();
  await mkdir(join(directory, 'redis'));
  await program({
    name: 'redis',
    command: [
      'redis-server',
      ...['--port', String(redisPort), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'yes'],
      ...['--maxmemory-policy', 'noeviction', '--dir', join(directory, 'redis')],
    ],
    isReady: () => answers(redisPort),
  }).start();
  return redisPort;
}

/** The library with its users, companies and projects, behind a proxy. */
async function startLibrary(
  { program, opening }: Programs,
  at: { random: () => number; publicUrl: string; libraryDatabaseUrl: string },
) {
  const libraryPort = await freePort();
  const libraryProxy = await startProxy({ port: await freePort(), target: libraryPort, random: at.random });
  opening.defer(() => libraryProxy.close());
  const content = createContent();
  const adminPort = await freePort();
  const library = openLibrary({
    adminUrl: `http://127.0.0.1:${adminPort}`,
    proxy: libraryProxy,
    content,
    program: program({
      name: 'library',
      command: [
        ...[process.execPath, main, 'library', '--json', '--auto-consent', '--synthetic', '0'],
        ...['--port', String(libraryPort), '--admin-port', String(adminPort), '--public-url', libraryProxy.url],
        ...['--client-id', clientId, '--client-secret', clientSecret],
        ...['--redirect-uri', `${at.publicUrl}/oauth/callback`],
      ],
      env: { LIBRARY_DATABASE_URL: at.libraryDatabaseUrl },
      isReady: (output) => output.includes('"adminUrl"'),
    }),
  });
  await library.start();
  await library.admin(async (admin) => {
    for (const { id } of users) await admin.addUser({ id, name: id, email: `${id}@example.com` });
    for (const id of companies) {
      const userIds = users.filter((user) => user.companies.includes(id)).map((user) => user.id);
      await admin.addCompany({ id, name: `Company ${id}`, userIds });
    }
    for (const project of projects) await admin.addProject(project);
  });
  return { library, libraryProxy, content };
}
