// @module-tag slow
import { readFile } from 'node:fs/promises';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { generate } from '../helm/generate.ts';
import { secretVariables, variableNames } from '../src/config/environment.ts';
import { chart, ci, refusal } from './support/helm.ts';
import { installed } from './support/installed.ts';

const isThere = await installed('helm');
const skipped = isThere ? '' : ' (skipped: helm is not installed)';

test('README and schema of the chart match its values (node helm/generate.ts)', async () => {
  const { readme, schema } = generate();
  expect(await readFile(`${chart}/README.md`, 'utf8')).toBe(readme);
  expect(await readFile(`${chart}/values.schema.json`, 'utf8')).toBe(schema);
  const { version } = JSON.parse(await readFile('package.json', 'utf8'));
  expect(parse(await readFile(`${chart}/Chart.yaml`, 'utf8'))).toMatchObject({ version, appVersion: version });
  const undescribed = readme.split('\n').filter((line) => /^\| `.*\|\s+\|$/.test(line));
  expect(undescribed).toEqual([]);
});

test('the chart names its source, and has the icon of the dashboard', async () => {
  const about = parse(await readFile(`${chart}/Chart.yaml`, 'utf8'));
  expect(about.sources).toEqual([about.home]);
  expect(about.maintainers).toHaveLength(1);
  const [type, data] = about.icon.split(',');
  expect(type).toBe('data:image/svg+xml;base64');
  expect(Buffer.from(data, 'base64')).toEqual(await readFile('src/http/dashboard/icon.svg'));
});

test('every variable of the configuration can be set in the chart', async () => {
  const { properties } = JSON.parse(await readFile(`${chart}/values.schema.json`, 'utf8'));
  const settable = [...Object.keys(properties.config.properties), ...Object.keys(properties.secrets.properties)];
  const byChart = ['HOST', 'PORT', 'METRICS_PORT', 'DATA_DIR'];
  const files = [...secretVariables].map((name) => `${name}_FILE`);
  expect([...settable, ...byChart].sort()).toEqual([...variableNames, ...files].sort());
  for (const name of secretVariables) expect(Object.keys(properties.secrets.properties)).toContain(name);
});

test('an example of the chart that sets NODE_OPTIONS keeps those of the image', async () => {
  const [, ofImage] = /^ENV NODE_OPTIONS=(\S+)$/m.exec(await readFile('Dockerfile', 'utf8'))!;
  const { extraEnv } = parse(await readFile(ci('everything'), 'utf8'));
  expect(extraEnv.find(({ name }: { name: string }) => name === 'NODE_OPTIONS').value.split(' ')).toContain(ofImage);
});

describe.skipIf(!isThere)(`the chart${skipped}`, () => {
  test.each([
    ['a setting that does not exist', 'minimal', { config: { SYNC_INTERVALL: '5m' } }, 'SYNC_INTERVALL'],
    ['a secret among the settings', 'minimal', { config: { ADMIN_TOKEN: 'x' } }, 'ADMIN_TOKEN'],
    ['no place for the copy', 'minimal', { config: { STORAGE_URL: null } }, 'STORAGE_URL'],
    ['a value that does not exist', 'minimal', { worker: { replica: 3 } }, 'replica'],
    ['no secrets at all', 'minimal', { existingSecret: '' }, 'secrets.DATABASE_URL is not set'],
    ['both kinds of secrets', 'everything', { existingSecret: 'x' }, 'existingSecret and secrets are both set'],
    ['two autoscalers', 'everything', { worker: { autoscaling: { enabled: true } } }, 'enable one of them'],
    ['no worker at all', 'everything', { worker: { keda: { minReplicas: 0 } } }, 'minReplicas'],
    [
      'the port of the dashboard for metrics',
      'minimal',
      { metrics: { port: 8080 } },
      'metrics.port is 8080, the port of',
    ],
    ['a port of another container for metrics', 'everything', { metrics: { port: 5432 } }, 'the container proxy'],
    [
      'a port of a sidecar for metrics',
      'minimal',
      { initContainers: [{ name: 'mesh', restartPolicy: 'Always', ports: [{ containerPort: 9090 }] }] },
      'metrics.port is 9090, a port of the container mesh',
    ],
    ['a port that does not exist', 'minimal', { metrics: { port: 70_000 } }, 'metrics/port'],
    [
      'a label that selectors use',
      'minimal',
      { commonLabels: { 'app.kubernetes.io/name': 'x' } },
      'commonLabels has the label app.kubernetes.io/name',
    ],
    [
      'such a label of pods',
      'minimal',
      { worker: { podLabels: { 'app.kubernetes.io/component': 'x' } } },
      'worker.podLabels has the label app.kubernetes.io/component',
    ],
    [
      'an API address without http',
      'minimal',
      { config: { LIBRARY_API_URL: 'library.example.com' } },
      'LIBRARY_API_URL',
    ],
    ['an API address with a query', 'minimal', { config: { LIBRARY_API_URL: 'https://h/?a=b' } }, 'LIBRARY_API_URL'],
    ['an API address with a user', 'minimal', { config: { LIBRARY_API_URL: 'https://u@h/' } }, 'LIBRARY_API_URL'],
    ['an empty API address', 'minimal', { config: { LIBRARY_API_URL: '' } }, 'LIBRARY_API_URL'],
    [
      'TLS for an address without it',
      'production',
      { config: { PUBLIC_URL: 'http://mirror.example.com' } },
      'ingress.tls is enabled, but config.PUBLIC_URL begins with http://',
    ],
    ['a route without a Gateway', 'minimal', { httpRoute: { enabled: true } }, 'httpRoute.parentRefs is empty'],
  ])('the chart refuses %s', async (_, name, values, reason) => {
    expect(await refusal(name, values)).toContain(reason);
  });
});
