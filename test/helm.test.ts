// @module-tag slow
import { execFileSync, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { readConfig } from '../src/config/config.ts';
import { variableNames } from '../src/config/environment.ts';
import {
  chart,
  ci,
  find,
  helm,
  inDirectory,
  type Manifest,
  pods,
  problemsOf,
  render,
  renderChart,
  renderWith,
} from './support/helm.ts';
import { installed } from './support/installed.ts';
import { newGround } from './support/mirror.ts';
import { freePort } from './support/ports.ts';
import { until } from './support/until.ts';

const isThere = await installed('helm');
const skipped = isThere ? '' : ' (skipped: helm is not installed)';

describe.skipIf(!isThere)(`the chart${skipped}`, () => {
  test.each(['minimal', 'everything', 'production'])(
    'the chart renders valid Kubernetes objects with the values %s',
    async (name) => {
      await helm('lint', '--strict', '--quiet', chart, '--values', ci(name));
      const oldest = await render(ci(name), '--kube-version', '1.30.0');
      expect(await problemsOf(oldest)).toEqual([]);
      const manifests = await render(ci(name));
      expect(await problemsOf(manifests)).toEqual([]);
      const kinds = ['ConfigMap', 'Service', 'Deployment', 'ServiceAccount', 'Pod', 'PodDisruptionBudget'];
      expect(manifests.map((it) => it.kind)).toEqual(expect.arrayContaining(kinds));
      if (name !== 'everything') return;
      const optional = ['Secret', 'Ingress', 'HTTPRoute', 'NetworkPolicy', 'ServiceMonitor', 'PrometheusRule'];
      const scaling = ['ScaledObject', 'HorizontalPodAutoscaler'];
      expect(manifests.map((it) => it.kind)).toEqual(expect.arrayContaining([...optional, ...scaling]));
    },
  );

  test('a manifest with a field that Kubernetes does not know, or a wrong value, is found', async () => {
    const manifest = (unknown: object, port: unknown) => ({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'web' },
      spec: { ports: [{ port, ...unknown }] },
    });
    expect(await problemsOf([manifest({}, 80)])).toEqual([]);
    expect(await problemsOf([manifest({ containerPort: 80 }, 80)])).toEqual([expect.stringContaining('containerPort')]);
    expect(await problemsOf([manifest({}, '80')])).toEqual([
      expect.stringMatching(/Service web: .*port/),
      expect.stringContaining("'string' is not assignable"),
    ]);
  });

  test('the chart sets known variables only, to valid values', async () => {
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

  test('the chart gives pods enough time to stop, and meets the restricted Pod Security Standard', async () => {
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

  test('a new version of the chart alone changes no pod and no selector', async () => {
    await inDirectory(async (directory) => {
      const ofVersion = async (version: string) => {
        await helm('package', chart, '--destination', directory, '--version', version, '--app-version', version);
        // A release whose image is set by the user.
        const packaged = join(directory, `asset-mirror-${version}.tgz`);
        const manifests = await renderChart(packaged, ci('minimal'), '--set', 'image.tag=1.2.3');
        expect(find(manifests, 'Service').metadata.labels['helm.sh/chart']).toBe(`asset-mirror-${version}`);
        return manifests.filter(({ kind }) => kind === 'Deployment').map(({ spec }) => spec);
      };
      const [before, after] = [await ofVersion('9.9.8'), await ofVersion('9.9.9')];
      expect(after).toHaveLength(2);
      expect(after).toEqual(before);
    });
  });

  test('changed settings and secrets in the chart restart the pods', async () => {
    const checksums = async (values: object) =>
      (await renderWith('everything', values))
        .filter(({ kind }) => kind === 'Deployment')
        .map(({ spec }) => JSON.stringify(spec.template.metadata.annotations));
    const before = await checksums({});
    for (const values of [{ config: { LOG_LEVEL: 'debug' } }, { secrets: { ADMIN_TOKEN: 'another-token' } }]) {
      const after = await checksums(values);
      for (const [role, annotations] of after.entries()) expect(annotations).not.toBe(before[role]);
    }
  });

  test('web pods stay ready while only the bucket fails; workers do not', async () => {
    const manifests = await render(ci('minimal'));
    const path = (role: string) =>
      find(manifests, 'Deployment', role).spec.template.spec.containers[0].readinessProbe.httpGet.path;
    // test/http/health.test.ts tests the answer of this path.
    expect(path('web')).toBe('/readyz?without=bucket');
    expect(path('worker')).toBe('/readyz');
  });

  test('the chart passes on extra settings of pods, and evaluates extra objects', async () => {
    const manifests = await render(ci('everything'));
    for (const { spec } of manifests.filter(({ kind }) => kind === 'Deployment')) {
      expect(spec).toMatchObject({ strategy: { type: 'Recreate' }, revisionHistoryLimit: 5 });
      expect(spec.strategy.rollingUpdate).toBeUndefined();
      const pod = spec.template.spec;
      expect(pod.initContainers.map(({ name }: Manifest) => name)).toEqual(['wait']);
      expect(pod.containers.map(({ name }: Manifest) => name)).toEqual([expect.any(String), 'proxy']);
      expect(pod.hostAliases).toEqual([{ ip: '10.0.0.5', hostnames: ['library.internal'] }]);
      expect(pod.dnsConfig).toEqual({ options: [{ name: 'ndots', value: '2' }] });
      expect(pod.volumes).toContainEqual({ name: 'mirror', persistentVolumeClaim: { claimName: 'mirror' } });
      expect(pod.containers[0].volumeMounts).toContainEqual({ name: 'mirror', mountPath: '/mirror' });
    }
    expect(find(manifests, 'ConfigMap', 'mirror-as-map').data).toEqual({ namespace: 'default' });
    expect(find(manifests, 'ConfigMap', 'mirror-as-text')).toBeDefined();
    const [{ spec }] = (await render(ci('minimal'))).filter(({ kind }) => kind === 'Deployment');
    expect(spec.strategy).toEqual({ rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } });
  });

  test('the chart routes the host and path of PUBLIC_URL, and further hosts, to the web processes', async () => {
    const manifests = await render(ci('everything'));
    const [ingress, route] = [find(manifests, 'Ingress').spec, find(manifests, 'HTTPRoute').spec];
    const service = find(manifests, 'Service', 'mirror');
    const hosts = ['media.example.com', 'mirror.example.com', '*.media.example.com'];
    expect(ingress.rules.map(({ host }: Manifest) => host)).toEqual(hosts);
    expect(ingress.tls).toEqual([{ hosts, secretName: 'certificate' }]);
    for (const { http } of ingress.rules) {
      expect(http.paths).toEqual([
        {
          path: '/mirror/',
          pathType: 'Prefix',
          backend: { service: { name: service.metadata.name, port: { name: 'http' } } },
        },
      ]);
    }
    expect(route.hostnames).toEqual(['media.example.com', 'mirror.example.com']);
    expect(route.parentRefs).toEqual([{ name: 'public', namespace: 'gateways', sectionName: 'https' }]);
    expect(route.rules).toEqual([
      {
        matches: [{ path: { type: 'PathPrefix', value: '/mirror/' } }],
        backendRefs: [{ name: service.metadata.name, port: service.spec.ports[0].port }],
      },
    ]);
  });

  test('the chart takes secrets from mounted files', async () => {
    const inFiles = ['DATABASE_URL', 'REDIS_URL', 'ENCRYPTION_KEYS', 'ADMIN_TOKEN', 'LIBRARY_CLIENT_SECRET'];
    const manifests = await renderWith('minimal', {
      existingSecret: '',
      secrets: { LIBRARY_CLIENT_ID: 'mirror' },
      config: Object.fromEntries(inFiles.map((name) => [`${name}_FILE`, `/run/secrets/${name}`])),
    });
    expect(find(manifests, 'Secret').stringData).toEqual({ LIBRARY_CLIENT_ID: 'mirror' });
    expect(find(manifests, 'ConfigMap').data).toMatchObject({ ADMIN_TOKEN_FILE: '/run/secrets/ADMIN_TOKEN' });
  });

  test('a worker with the arguments and settings of the chart answers its probes', async () => {
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

  test('the chart has the alerts and the dashboard of ops/, also as a package', async () => {
    const manifests = await render(ci('production'));
    const [{ data }, rule] = [find(manifests, 'ConfigMap', 'dashboard'), find(manifests, 'PrometheusRule')];
    const [alerts, dashboard] = await Promise.all(
      ['ops/prometheus/alerts.yml', 'ops/grafana/asset-mirror.json'].map((file) => readFile(file, 'utf8')),
    );
    expect(JSON.parse(data['asset-mirror.json'])).toEqual(JSON.parse(dashboard!));
    expect(rule.spec).toEqual(parseAllDocuments(alerts!)[0]!.toJS());

    await inDirectory(async (directory) => {
      await helm('package', chart, '--destination', directory, '--version', '9.9.9');
      const unpack = (file: string) =>
        execFileSync('tar', [
          '-xzOf',
          join(directory, 'asset-mirror-9.9.9.tgz'),
          `asset-mirror/files/${file}`,
        ]).toString();
      expect(unpack('alerts.yml')).toBe(alerts);
      expect(unpack('dashboard.json')).toBe(dashboard);
    });
  });

  test('the KEDA query of the chart uses an existing metric', async () => {
    const { metadata } = find(await render(ci('everything')), 'ScaledObject').spec.triggers[0];
    expect(metadata).toMatchObject({ threshold: '128' });
    expect(metadata.query).toContain('asset_mirror_queue_jobs{namespace="default",state=~"waiting|active"}');
    expect(await readFile('src/metrics/gauges.ts', 'utf8')).toContain('asset_mirror_queue_jobs');
  });
});
