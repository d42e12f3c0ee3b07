import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import ts from 'typescript';
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

/**
 * What is wrong with these manifests, by the schemas and the types of their kinds, of one recent version of Kubernetes. The schemas
 * allow unknown fields; the types do not.
 */
export async function problemsOf(manifests: Manifest[]): Promise<string[]> {
  const problems: string[] = [];
  for (const manifest of manifests) {
    const Model = (await import(moduleOf(manifest)))[manifest.kind];
    try {
      new Model(manifest).validate();
    } catch (error) {
      problems.push(`${manifest.kind} ${manifest.metadata.name}: ${(error as Error).message}`);
    }
  }
  return [...problems, ...typeErrors(manifests)];
}

/** The module with the schema and the type of a manifest. */
function moduleOf({ apiVersion }: Manifest): string {
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  const own: Record<string, string> = {
    'keda.sh': 'keda',
    'monitoring.coreos.com': 'prometheus-operator',
    'gateway.networking.k8s.io': 'gateway-api',
  };
  return own[group]
    ? `@kubernetes-models/${own[group]}/${group}/${version}`
    : `kubernetes-models/${[group, version].filter(Boolean).join('/')}`;
}

/** Compiles the manifests as constants of their types. */
function typeErrors(manifests: Manifest[]): string[] {
  const constants = manifests.map((manifest, i) => {
    const type = `import('${moduleOf(manifest)}').I${manifest.kind}`;
    return `export const manifest${i}: ${type} = ${JSON.stringify(manifest, null, 1)};`;
  });
  // In the project, so that the types are found. It exists in memory only.
  const path = resolve('manifests.ts');
  const options: ts.CompilerOptions = { module: ts.ModuleKind.NodeNext, strict: true, skipLibCheck: true, types: [] };
  const host = ts.createCompilerHost(options);
  const { readFile, fileExists } = host;
  host.readFile = (name) => (name === path ? constants.join('\n') : readFile(name));
  host.fileExists = (name) => name === path || fileExists(name);
  const errors = ts.getPreEmitDiagnostics(ts.createProgram([path], options, host));
  return errors.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
}

export const find = (manifests: Manifest[], kind: string, name = '') =>
  manifests.find((it) => it.kind === kind && it.metadata.name.endsWith(name));
export const pods = (manifests: Manifest[]) =>
  manifests.filter((it) => it.kind === 'Deployment').map((it) => it.spec.template.spec);
