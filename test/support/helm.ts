import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { parseAllDocuments, stringify } from 'yaml';

/** Renders the Helm chart, and validates what it renders. */

export const chart = 'helm/asset-mirror';
/** The version of Kubernetes that the manifests are rendered for. */
const kubernetes = '1.34.0';

export async function helm(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)('helm', args, { maxBuffer: 32 * 2 ** 20 });
  return stdout;
}

// biome-ignore lint/suspicious/noExplicitAny: tests state what they expect of a manifest
export type Manifest = any;

export const ci = (name: string) => `${chart}/ci/${name}-values.yaml`;

export const render = (values: string, ...more: string[]) => renderChart(chart, values, ...more);

export async function renderChart(from: string, values: string, ...more: string[]): Promise<Manifest[]> {
  const text = await helm('template', 'mirror', from, '--kube-version', kubernetes, '--values', values, ...more);
  return parseAllDocuments(text)
    .map((document) => document.toJS())
    .filter(Boolean);
}

export async function inDirectory<T>(work: (directory: string) => Promise<T>): Promise<T> {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-helm-'));
  try {
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** Renders these values on top of those of ci/. */
export const renderWith = (name: string, values: object) =>
  inDirectory(async (directory) => {
    const file = join(directory, 'values.yaml');
    await writeFile(file, stringify(values));
    return render(ci(name), '--values', file);
  });

/** The message with which Helm refuses these values on top of those of ci/. */
export const refusal = (name: string, values: object): Promise<string> =>
  renderWith(name, values).then(
    () => 'nothing',
    (error) => error.stderr,
  );

/** Validates a manifest with the schema of its kind. */
export async function validate(manifest: Manifest): Promise<void> {
  const [group, version] = manifest.apiVersion.includes('/')
    ? manifest.apiVersion.split('/')
    : ['', manifest.apiVersion];
  const own: Record<string, string> = {
    'keda.sh': 'keda',
    'monitoring.coreos.com': 'prometheus-operator',
    'gateway.networking.k8s.io': 'gateway-api',
  };
  const place = own[group]
    ? `@kubernetes-models/${own[group]}/${group}/${version}`
    : `kubernetes-models/${[group, version].filter(Boolean).join('/')}`;
  const Model = (await import(place))[manifest.kind];
  expect(Model, `${manifest.apiVersion} ${manifest.kind}`).toBeDefined();
  new Model(manifest).validate();
}

export const find = (manifests: Manifest[], kind: string, name = '') =>
  manifests.find((it) => it.kind === kind && it.metadata.name.endsWith(name));
export const pods = (manifests: Manifest[]) =>
  manifests.filter((it) => it.kind === 'Deployment').map((it) => it.spec.template.spec);
