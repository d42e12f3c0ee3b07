// @module-tag slow
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '../src/config/config.ts';
import { secretVariables, variableNames } from '../src/config/environment.ts';
import { parseDuration } from '../src/floor/units.ts';

interface Service {
  build?: { args: Record<string, string> };
  user?: string;
  environment?: Record<string, string>;
  secrets?: string[];
  networks?: string[] | Record<string, unknown>;
  ports?: string[];
  tmpfs?: string[];
  command: string[];
  stop_grace_period: string;
  [key: string]: unknown;
}

const root = join(import.meta.dirname, '..');
const text = readFileSync(join(root, 'docker-compose.yml'), 'utf8');
const compose = parse(text, { merge: true });
const services = compose.services as Record<string, Service>;
const demo = parseEnv(readFileSync(join(root, 'ops/compose/demo.env'), 'utf8')) as Record<string, string>;
const demoSecrets = join(root, demo.SECRETS_DIR!);
const networksOf = ({ networks }: Service) => (Array.isArray(networks) ? networks : Object.keys(networks ?? {}));

/** `${NAME}`, `${NAME:-default}`, `${NAME:?sentence}` */
const references = [...text.matchAll(/\$\{(\w+)(?::([-?])([^}]*))?\}/g)].map(([, name, kind, words]) => ({
  name: name!,
  kind,
  words: words ?? '',
}));
const required = new Set(references.filter(({ kind }) => kind === '?').map(({ name }) => name));

/** The environment of web and workers in the demo, with the secrets where they are on this machine. */
const environmentOf = (role: string, secrets: string) =>
  Object.fromEntries(
    Object.entries(services[role]!.environment!).map(([name, value]) => [
      name,
      value
        .replace(/\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}/g, (_, variable, otherwise = '') => demo[variable] ?? otherwise)
        .replace('/run/secrets', secrets),
    ]),
  );

test('compose says what to set if a required variable is missing', () => {
  for (const { name, kind, words } of references) {
    if (name.startsWith('LIBRARY_')) expect([name, kind]).toEqual([name, '?']);
    if (kind === '?') expect(words, name).toMatch(/^set it in \.env to /);
  }
  expect([...required].sort()).toEqual(['LIBRARY_API_URL', 'LIBRARY_APP_URL', 'LIBRARY_CLIENT_ID']);
});

test('the demo of compose sets all required variables, and only variables that exist', () => {
  expect(Object.keys(demo)).toEqual(expect.arrayContaining([...required]));
  const ofCompose = new Set([...references.map(({ name }) => name), 'COMPOSE_PROFILES', 'COMPOSE_PROJECT_NAME']);
  for (const name of Object.keys(demo)) expect([...ofCompose, ...variableNames]).toContain(name);
});

test('web and workers in compose get a valid configuration, and enough time to stop', () => {
  for (const role of ['web', 'worker']) {
    const { command, stop_grace_period } = services[role]!;
    expect(command).toEqual(['start', '--role', role]);
    const given = environmentOf(role, demoSecrets);
    const files = [...secretVariables].map((name) => `${name}_FILE`);
    expect([...variableNames, ...files, 'no_proxy', 'AWS_SHARED_CREDENTIALS_FILE']).toEqual(
      expect.arrayContaining(Object.keys(given)),
    );
    const config = readConfig({ ...demo, ...given }, { embedded: false });
    expect(config).toMatchObject({ host: '0.0.0.0', storage: { target: { kind: 's3', bucket: 'mirror' } } });
    expect(parseDuration(stop_grace_period)).toBeGreaterThan(config.shutdownGrace);
  }
});

describe('secrets', () => {
  const names = Object.keys(compose.secrets);

  test('secrets in compose are files: no variable, command or health check contains one', () => {
    for (const [name, { file }] of Object.entries<{ file: string }>(compose.secrets)) {
      expect(file).toBe(`\${SECRETS_DIR:-./secrets}/${name}`);
    }
    expect(
      references.map(({ name }) => name).filter((name) => /PASSWORD|SECRET$|SECRET_KEY|TOKEN|KEYS/.test(name)),
    ).toEqual([]);
    // The demo has no OpenID provider.
    const values = names.map((name) => readFileSync(join(demoSecrets, name), 'utf8').trim()).filter(Boolean);
    // The client secret of the demo's library is public.
    const { library: _, ...others } = services;
    for (const value of values) expect(JSON.stringify(others)).not.toContain(value);
    for (const [service, { environment = {} }] of Object.entries(services)) {
      for (const [name, value] of Object.entries(environment)) {
        if (secretVariables.has(name) || /PASSWORD|SECRET|TOKEN|CREDENTIALS/.test(name)) {
          expect(`${service}: ${name}=${value}`).toMatch(/_FILE=\/run\/secrets\/\w+$/);
        }
      }
    }
  });

  test('secrets in compose reach only the services that read them', () => {
    for (const [name, { secrets = [], ...rest }] of Object.entries(services)) {
      const ownScript = name === 'demo' ? readFileSync(join(root, 'ops/compose/connect.mjs'), 'utf8') : '';
      const read = [...(JSON.stringify(rest) + ownScript).matchAll(/\/run\/secrets\/(\w+)/g)].map(([, it]) => it);
      expect(read.length > 0 ? [...new Set(read)].sort() : [], name).toEqual([...secrets].sort());
    }
  });

  test('secrets in compose exist for the demo', () => {
    expect(readdirSync(demoSecrets).sort()).toEqual([...names].sort());
  });

  test('ops/compose/secrets.sh creates secrets once, in a directory that only the owner can enter', () => {
    const directory = mkdtempSync(join(tmpdir(), 'asset-mirror-secrets-'));
    try {
      const create = () => execFileSync('sh', ['ops/compose/secrets.sh', directory], { cwd: root }).toString();
      expect(create()).toContain(`${directory}/library_client_secret`);
      writeFileSync(join(directory, 'library_client_secret'), 'the secret\n');
      const contents = () =>
        Object.fromEntries(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name), 'utf8')]));
      const first = contents();
      expect(create()).toBe('');
      expect(contents()).toEqual(first);
      expect(Object.keys(first).sort()).toEqual([...names].sort());
      expect(statSync(directory).mode & 0o777).toBe(0o700);
      for (const name of names) expect(statSync(join(directory, name)).mode & 0o777).toBe(0o644);
      expect(first.aws_credentials).toContain(`aws_secret_access_key = ${first.s3_secret_key}`);
      const { databaseUrl, redisUrl } = readConfig(environmentOf('web', directory), { embedded: false });
      expect(databaseUrl).toContain(`:${first.postgres_password!.trim()}@postgres:`);
      expect(redisUrl).toBe(`redis://:${first.redis_password!.trim()}@redis:6379`);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });
});

describe.each(Object.entries(services))('the service %s', (name, service) => {
  test('each service of compose has no root, no capabilities and a read-only file system', () => {
    expect(service).toMatchObject({
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
      read_only: true,
    });
    expect(service.cap_add).toBeUndefined();
    // Our image has a user of its own (test/image.test.ts).
    if (!service.build) expect(service.user).toMatch(/^(postgres|redis|1000:1000)$/);
  });

  test('each service of compose is reachable from outside only if people use it', () => {
    const outside = ['web', 'worker', 'library'].includes(name);
    const networks = networksOf(service);
    expect(networks.includes('outside')).toBe(outside);
    if (service.network_mode === undefined) expect(networks).toContain('inside');
    expect(service.ports !== undefined).toBe(['web', 'library'].includes(name));
    for (const port of service.ports ?? []) expect(port).toContain('127.0.0.1:');
  });
});

test('the network of database, queue and store in compose has no way out', () => {
  expect(compose.networks).toEqual({ inside: { internal: true }, outside: null });
});

test('our image in compose is built with a version and a revision', () => {
  const image = readFileSync(join(root, 'Dockerfile'), 'utf8');
  const built = Object.values(services).filter(({ build }) => build);
  expect(built.length).toBeGreaterThan(3);
  for (const { build } of built) {
    expect(Object.keys(build!.args)).toEqual(['VERSION', 'REVISION']);
    for (const argument of Object.keys(build!.args)) expect(image).toContain(`ARG ${argument}=`);
  }
});
