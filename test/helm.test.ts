import { execFile, execFileSync, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, inject, test } from 'vitest';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { generate } from '../helm/generate.ts';
import { readConfig } from '../src/config/config.ts';
import { secretVariables, variableNames } from '../src/config/environment.ts';
import { installed } from './support/installed.ts';
import { newGround } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

const chart = 'helm/asset-mirror';
/** What the manifests are rendered for. */
const kubernetes = '1.34.0';

const isThere = await installed('helm');
const skipped = isThere ? '' : ' (skipped: helm is not installed)';

async function helm(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('helm', args, { maxBuffer: 32 * 2 ** 20 });
  return stdout;
}

// biome-ignore lint/suspicious/noExplicitAny: tests say what they expect
type Manifest = any;

const ci = (name: string) => `${chart}/ci/${name}-values.yaml`;

async function render(values: string, ...more: string[]): Promise<Manifest[]> {
  const text = await helm('template', 'mirror', chart, '--kube-version', kubernetes, '--values', values, ...more);
  return parseAllDocuments(text)
    .map((document) => document.toJS())
    .filter(Boolean);
}

/** What Helm says when it refuses these values on top of those of ci/. */
async function refusal(name: string, values: object): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-helm-'));
  try {
    const file = join(directory, 'values.yaml');
    await writeFile(file, stringify(values));
    return await render(ci(name), '--values', file).then(
      () => 'nothing',
      (error) => error.stderr,
    );
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** Holds a manifest against the schema of its kind. */
async function validate(manifest: Manifest): Promise<void> {
  const [group, version] = manifest.apiVersion.includes('/')
    ? manifest.apiVersion.split('/')
    : ['', manifest.apiVersion];
  const own: Record<string, string> = { 'keda.sh': 'keda', 'monitoring.coreos.com': 'prometheus-operator' };
  const place = own[group]
    ? `@kubernetes-models/${own[group]}/${group}/${version}`
    : `kubernetes-models/${[group, version].filter(Boolean).join('/')}`;
  const Model = (await import(place))[manifest.kind];
  expect(Model, `${manifest.apiVersion} ${manifest.kind}`).toBeDefined();
  new Model(manifest).validate();
}

const find = (manifests: Manifest[], kind: string, name = '') =>
  manifests.find((it) => it.kind === kind && it.metadata.name.endsWith(name));
const pods = (manifests: Manifest[]) =>
  manifests.filter((it) => it.kind === 'Deployment').map((it) => it.spec.template.spec);

test('README and schema of the chart are what its values say (node helm/generate.ts)', async () => {
  const { readme, schema } = generate();
  expect(await readFile(`${chart}/README.md`, 'utf8')).toBe(readme);
  expect(await readFile(`${chart}/values.schema.json`, 'utf8')).toBe(schema);
  const { version } = JSON.parse(await readFile('package.json', 'utf8'));
  expect(parse(await readFile(`${chart}/Chart.yaml`, 'utf8'))).toMatchObject({ version, appVersion: version });
  const undescribed = readme.split('\n').filter((line) => /^\| `.*\|\s+\|$/.test(line));
  expect(undescribed).toEqual([]);
});

test('every variable of the configuration can be set in the chart', async () => {
  const { properties } = JSON.parse(await readFile(`${chart}/values.schema.json`, 'utf8'));
  const settable = [...Object.keys(properties.config.properties), ...Object.keys(properties.secrets.properties)];
  const byChart = ['HOST', 'PORT', 'METRICS_PORT', 'DATA_DIR'];
  expect([...settable, ...byChart].sort()).toEqual([...variableNames].sort());
  for (const name of secretVariables) expect(Object.keys(properties.secrets.properties)).toContain(name);
});

test('an example of the chart that sets NODE_OPTIONS keeps those of the image', async () => {
  const [, ofImage] = /^ENV NODE_OPTIONS=(\S+)$/m.exec(await readFile('Dockerfile', 'utf8'))!;
  const { extraEnv } = parse(await readFile(ci('everything'), 'utf8'));
  expect(extraEnv.find(({ name }: { name: string }) => name === 'NODE_OPTIONS').value.split(' ')).toContain(ofImage);
});

describe.skipIf(!isThere)(`the chart${skipped}`, () => {
  test.each(['minimal', 'everything', 'production'])('renders what Kubernetes takes: %s', async (name) => {
    await helm('lint', '--strict', '--quiet', chart, '--values', ci(name));
    const manifests = await render(ci(name));
    for (const manifest of manifests) await validate(manifest);
    const kinds = ['ConfigMap', 'Service', 'Deployment', 'ServiceAccount', 'Pod', 'PodDisruptionBudget'];
    expect(manifests.map((it) => it.kind)).toEqual(expect.arrayContaining(kinds));
    if (name !== 'everything') return;
    const optional = ['Secret', 'Ingress', 'NetworkPolicy', 'ServiceMonitor', 'PrometheusRule', 'ScaledObject'];
    expect(manifests.map((it) => it.kind)).toEqual(expect.arrayContaining([...optional, 'HorizontalPodAutoscaler']));
  });

  test('sets variables that the configuration knows, to values that it takes', async () => {
    const manifests = await render(ci('everything'));
    const { data } = find(manifests, 'ConfigMap');
    const { stringData } = find(manifests, 'Secret');
    const ofOthers = /^AWS_|^NODE_/;
    const names = [...Object.keys(data), ...Object.keys(stringData)].filter((name) => !ofOthers.test(name));
    expect(names.filter((name) => !variableNames.includes(name))).toEqual([]);
    expect(readConfig({ ...data, ...stringData }, { embedded: false })).toMatchObject({
      host: '0.0.0.0',
      port: 8080,
      metricsPort: 9090,
      shutdownGrace: 90_000,
      transfer: { concurrency: 16 },
      thumbnails: { mirror: false },
    });
  });

  test('gives pods the time that a stop takes, and keeps to what is restricted', async () => {
    for (const [name, grace] of [
      ['minimal', 25],
      ['everything', 90],
    ] as const) {
      for (const pod of pods(await render(ci(name)))) {
        const sleep = pod.containers[0].lifecycle?.preStop.sleep.seconds ?? 0;
        expect(pod.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(grace + sleep + 10);
        expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
        expect(pod.containers[0].securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        const mounts = pod.containers[0].volumeMounts.map((mount: { mountPath: string }) => mount.mountPath);
        expect(mounts).toEqual(expect.arrayContaining(['/data', '/tmp']));
      }
    }
  });

  test('starts, with the arguments and settings of a worker, what answers its probes', async () => {
    const manifests = await render(ci('minimal'));
    const [container] = find(manifests, 'Deployment', 'worker').spec.template.spec.containers;
    const { data } = find(manifests, 'ConfigMap');
    const port = await freePort();
    const ground = await newGround({ port: await freePort(), redis: inject('redis') });
    const child = spawn(process.execPath, ['src/main.ts', ...container.args], {
      env: {
        PATH: process.env.PATH,
        ...data,
        ...ground.environment,
        HOST: data.HOST,
        METRICS_PORT: String(port),
        LIBRARY_CLIENT_ID: 'id',
        LIBRARY_CLIENT_SECRET: 'secret',
      },
      stdio: 'ignore',
    });
    const ended = new Promise((resolve) => child.once('exit', resolve));
    try {
      for (const probe of [container.startupProbe, container.livenessProbe, container.readinessProbe]) {
        const { path, port: name } = probe.httpGet;
        const { containerPort } = container.ports.find((it: { name: string }) => it.name === name);
        expect(String(containerPort)).toBe(data.METRICS_PORT);
        const asked = async () =>
          (await fetch(`http://127.0.0.1:${port}${path}`).catch(() => undefined))?.status === 200;
        await until(`${path} to answer`, asked);
      }
      child.kill('SIGTERM');
      expect(await ended).toBe(0);
    } finally {
      child.kill('SIGKILL');
      await ended;
      await ground.clear();
    }
  });

  test('has the alerts and the dashboard of ops/, packaged too', async () => {
    const manifests = await render(ci('production'));
    const [{ data }, rule] = [find(manifests, 'ConfigMap', 'dashboard'), find(manifests, 'PrometheusRule')];
    const [alerts, dashboard] = await Promise.all(
      ['ops/prometheus/alerts.yml', 'ops/grafana/asset-mirror.json'].map((file) => readFile(file, 'utf8')),
    );
    expect(JSON.parse(data['asset-mirror.json'])).toEqual(JSON.parse(dashboard!));
    expect(rule.spec).toEqual(parseAllDocuments(alerts!)[0]!.toJS());

    const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-helm-'));
    try {
      await helm('package', chart, '--destination', directory, '--version', '9.9.9');
      const unpack = (file: string) =>
        execFileSync('tar', [
          '-xzOf',
          join(directory, 'asset-mirror-9.9.9.tgz'),
          `asset-mirror/files/${file}`,
        ]).toString();
      expect(unpack('alerts.yml')).toBe(alerts);
      expect(unpack('dashboard.json')).toBe(dashboard);
    } finally {
      await rm(directory, { recursive: true });
    }
  });

  test('asks with KEDA for what the metrics have', async () => {
    const { metadata } = find(await render(ci('everything')), 'ScaledObject').spec.triggers[0];
    expect(metadata).toMatchObject({ threshold: '8' });
    expect(metadata.query).toContain('asset_mirror_queue_jobs{namespace="default",state=~"waiting|active"}');
    expect(await readFile('src/metrics/gauges.ts', 'utf8')).toContain('asset_mirror_queue_jobs');
  });

  test.each([
    ['a setting that does not exist', 'minimal', { config: { SYNC_INTERVALL: '5m' } }, 'SYNC_INTERVALL'],
    ['a secret among the settings', 'minimal', { config: { ADMIN_TOKEN: 'x' } }, 'ADMIN_TOKEN'],
    ['no place for the copy', 'minimal', { config: { STORAGE_URL: null } }, 'STORAGE_URL'],
    ['a value that does not exist', 'minimal', { worker: { replica: 3 } }, 'replica'],
    ['no secrets at all', 'minimal', { existingSecret: '' }, 'secrets.DATABASE_URL is not set'],
    ['both kinds of secrets', 'everything', { existingSecret: 'x' }, 'existingSecret and secrets are both set'],
    ['two autoscalers', 'everything', { worker: { autoscaling: { enabled: true } } }, 'enable one of them'],
    ['no worker at all', 'everything', { worker: { keda: { minReplicas: 0 } } }, 'minReplicas'],
  ])('refuses %s', async (_, name, values, reason) => {
    expect(await refusal(name, values)).toContain(reason);
  });
});
