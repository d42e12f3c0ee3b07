import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { GenericContainer, getContainerRuntimeClient, type StartedTestContainer, Wait } from 'testcontainers';
import { parse } from 'yaml';
import { redisDatabases } from './redis.ts';
import type { S3Server } from './services.ts';

type Stops = (() => Promise<unknown>)[];

interface Containers {
  postgres?: string | undefined;
  redis?: string | undefined;
  s3?: S3Server | undefined;
}

/** The images of docker-compose.yml, so that tests use the versions of production. */
const compose = parse(readFileSync(join(import.meta.dirname, '../../docker-compose.yml'), 'utf8'), { merge: true });
const imageOf = (service: string): string => compose.services[service].image;

/**
 * PostgreSQL, Redis and an S3 store as containers. Undefined without a container engine (DOCKER_HOST, or Docker's socket);
 * containers that cannot be started are reported and skipped. TEST_SERVICES=local skips all of
 * them; then the engine is only for our image.
 */
export async function startContainers(stops: Stops): Promise<Containers | undefined> {
  const engine = await getContainerRuntimeClient().catch(() => undefined);
  if (!engine) return undefined;
  if (process.env.TEST_SERVICES === 'local') return {};
  const [postgres, redis, s3] = await Promise.all([
    started(stops, 'postgres', postgresContainer(), (at) => `postgres://postgres:test@${at(5432)}/postgres`),
    started(stops, 'redis', redisContainer(), (at) => `redis://${at(6379)}`),
    started(stops, 's3', versityContainer(), (at) => ({ ...versity, endpoint: `http://${at(7070)}` })),
  ]);
  return { postgres, redis, s3 };
}

const postgresContainer = () =>
  new GenericContainer(imageOf('postgres'))
    // The options are those of the embedded PostgreSQL (src/store/embedded/embedded.ts).
    .withEnvironment({
      POSTGRES_PASSWORD: 'test',
      POSTGRES_INITDB_ARGS: '--encoding=UTF8 --locale=C.UTF-8',
    })
    .withCommand(['postgres', '-c', 'max_connections=200'])
    .withExposedPorts(5432)
    // Over TCP: during its setup it listens on a socket only.
    .withWaitStrategy(Wait.forSuccessfulCommand('pg_isready --host=127.0.0.1'));

const redisContainer = () =>
  new GenericContainer(imageOf('redis'))
    .withCommand([
      'redis-server',
      '--databases',
      String(redisDatabases),
      '--save',
      '',
      '--maxmemory-policy',
      'noeviction',
      '--protected-mode',
      'no',
    ])
    .withExposedPorts(6379)
    .withWaitStrategy(Wait.forSuccessfulCommand('redis-cli ping | grep -q PONG'));

const versity = {
  name: 'Versity S3 Gateway',
  region: 'us-east-1',
  accessKey: 'testaccesskey',
  secretKey: 'testsecretkey0123456789',
} satisfies Partial<S3Server>;

const versityContainer = () =>
  new GenericContainer(imageOf('s3'))
    .withEntrypoint(['sh', '-c'])
    .withCommand([
      'mkdir /tmp/objects /tmp/facts && exec versitygw --port :7070 --health /health --quiet posix --sidecar /tmp/facts /tmp/objects',
    ])
    .withEnvironment({ ROOT_ACCESS_KEY: versity.accessKey, ROOT_SECRET_KEY: versity.secretKey })
    .withExposedPorts(7070)
    .withWaitStrategy(Wait.forHttp('/health', 7070));

async function started<T>(
  stops: Stops,
  service: string,
  container: GenericContainer,
  found: (at: (port: number) => string) => T,
): Promise<T | undefined> {
  let running: StartedTestContainer;
  try {
    running = await container.withStartupTimeout(120_000).start();
  } catch (error) {
    process.stdout.write(`\n  No container of ${imageOf(service)}: ${(error as Error).message}\n`);
    return undefined;
  }
  stops.push(() => running.stop());
  return found((port) => `${running.getHost()}:${running.getMappedPort(port)}`);
}
