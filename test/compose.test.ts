import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseEnv } from 'node:util';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { readConfig } from '../src/config/config.ts';
import { variableNames } from '../src/config/environment.ts';
import { parseDuration } from '../src/units.ts';

const root = join(import.meta.dirname, '..');
const text = readFileSync(join(root, 'docker-compose.yml'), 'utf8');
const { services } = parse(text, { merge: true });
const demo = parseEnv(readFileSync(join(root, 'ops/compose/demo.env'), 'utf8')) as Record<string, string>;

/** `${NAME}`, `${NAME:-default}`, `${NAME:?sentence}` */
const references = [...text.matchAll(/\$\{(\w+)(?::([-?])([^}]*))?\}/g)].map(([, name, kind, words]) => ({
  name: name!,
  kind,
  words: words ?? '',
}));
const required = new Set(references.filter(({ kind }) => kind === '?').map(({ name }) => name));

test('compose has no secret that is not set: whoever forgets one is told what to do', () => {
  for (const { name, kind, words } of references) {
    if (/PASSWORD|SECRET|TOKEN|KEYS|^LIBRARY_/.test(name)) expect([name, kind]).toEqual([name, '?']);
    if (kind === '?') expect(words, name).toMatch(/^set it in \.env to /);
  }
  expect(required.size).toBeGreaterThan(8);
});

test('the demo sets all that compose asks for, and settings that there are', () => {
  expect(Object.keys(demo)).toEqual(expect.arrayContaining([...required]));
  const ofCompose = new Set([...references.map(({ name }) => name), 'COMPOSE_PROFILES', 'COMPOSE_PROJECT_NAME']);
  for (const name of Object.keys(demo)) expect([...ofCompose, ...variableNames]).toContain(name);
});

test('web and workers get a configuration that can be read, and the time to stop', () => {
  const filled = (value: string) =>
    value.replace(/\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}/g, (_, name, otherwise = '') => demo[name] ?? otherwise);
  for (const role of ['web', 'worker']) {
    const { environment, command, stop_grace_period } = services[role];
    expect(command).toEqual(['start', '--role', role]);
    const given = Object.fromEntries(
      Object.entries(environment).map(([name, value]) => [name, filled(value as string)]),
    );
    expect([...variableNames, 'no_proxy', 'AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY']).toEqual(
      expect.arrayContaining(Object.keys(given)),
    );
    const config = readConfig({ ...demo, ...given }, { embedded: false });
    expect(config).toMatchObject({ host: '0.0.0.0', storage: { target: { kind: 's3', bucket: 'mirror' } } });
    expect(parseDuration(stop_grace_period)).toBeGreaterThan(config.shutdownGrace);
  }
});
