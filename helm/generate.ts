import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isMap, isScalar, type Pair, parseDocument, type YAMLMap } from 'yaml';
import { secretVariables, variableNames } from '../src/config/environment.ts';

/**
 * Generates the chart's README and values.schema.json from its values.yaml: the comment above a value is its description.
 * `node helm/generate.ts` writes them, and a test compares them with the result of this module.
 */

const chart = join(import.meta.dirname, 'asset-mirror');

interface Value {
  path: string;
  description: string;
  fallback: unknown;
}

/** Set by the chart itself. */
const set = ['HOST', 'PORT', 'METRICS_PORT', 'DATA_DIR'];
const required = ['LIBRARY_API_URL', 'LIBRARY_APP_URL', 'PUBLIC_URL', 'STORAGE_URL'];
const inSecret = [...variableNames.filter((name) => secretVariables.has(name)), 'LIBRARY_CLIENT_ID'];
const inConfig = variableNames.filter((name) => !inSecret.includes(name) && !set.includes(name));
const text = { type: 'string' };
const port = { type: 'integer', minimum: 1, maximum: 65_535 };
/** Without user, password, query and fragment, as the configuration requires. */
const httpUrl = { type: 'string', pattern: '^https?://[^/?#@\\s]+(/[^?#\\s]*)?$' };
const anything = { type: ['string', 'number', 'boolean'] };

/** Schemas of values whose default does not show all that is allowed. */
const schemas: Record<string, object> = {
  config: {
    type: 'object',
    required,
    properties: {
      ...Object.fromEntries(inConfig.map((name) => [name, anything])),
      ...Object.fromEntries([...secretVariables].map((name) => [`${name}_FILE`, text])),
      LIBRARY_API_URL: httpUrl,
      LIBRARY_APP_URL: httpUrl,
      PUBLIC_URL: httpUrl,
      STORAGE_URL: { type: 'string', pattern: '^(s3|file)://' },
      SHUTDOWN_GRACE: { type: 'string', pattern: '^(\\d+(\\.\\d+)? *(ms|s|m|h|d) *)+$' },
    },
    additionalProperties: false,
  },
  secrets: {
    type: 'object',
    properties: Object.fromEntries(inSecret.map((name) => [name, text])),
    patternProperties: { '^AWS_[A-Z_]+$': text, '^OTEL_[A-Z_]+$': text },
    additionalProperties: false,
  },
  'image.digest': { type: 'string', pattern: '^(sha256:[0-9a-f]{64})?$' },
  'image.pullPolicy': { enum: ['Always', 'IfNotPresent', 'Never'] },
  'service.type': { enum: ['ClusterIP', 'NodePort', 'LoadBalancer'] },
  'service.port': port,
  'metrics.port': port,
  'worker.keda.minReplicas': { type: 'integer', minimum: 1 },
  ...Object.fromEntries(
    ['web', 'worker'].flatMap((role) => [
      [`${role}.readinessPath`, { enum: ['/readyz', '/readyz?without=bucket', '/healthz'] }],
      [`${role}.podDisruptionBudget.maxUnavailable`, { type: ['integer', 'string'] }],
    ]),
  ),
};
/** Maps that may have any keys. */
const open = /(resources|[sS]ecurityContext|labels|Labels|annotations|Annotations|nodeSelector|affinity)$/;

const describe = (comment: string | null | undefined) =>
  (comment ?? '')
    .split('\n')
    .map((line) => line.trim())
    .join(' ')
    .trim();

function walk(map: YAMLMap, prefix: string, values: Value[]): { properties: Record<string, object> } {
  const properties: Record<string, object> = {};
  for (const [index, pair] of (map.items as Pair[]).entries()) {
    const key = pair.key as { value: string; commentBefore?: string };
    const path = prefix ? `${prefix}.${key.value}` : key.value;
    // The parser attaches a comment above the first key to the map.
    const before = index === 0 ? (map.commentBefore ?? key.commentBefore) : key.commentBefore;
    const node = pair.value;
    const description = describe(before);
    if (isMap(node) && node.items.length > 0 && !open.test(path)) {
      properties[key.value] = walk(node, path, values);
      continue;
    }
    const fallback = isScalar(node) ? node.value : (node as { toJSON(): unknown }).toJSON();
    values.push({ path, description, fallback });
    properties[key.value] = { description, ...(schemas[path] ?? typeOf(fallback)) };
  }
  return { type: 'object', additionalProperties: false, properties } as { properties: Record<string, object> };
}

function typeOf(fallback: unknown): object {
  if (Array.isArray(fallback)) return { type: 'array' };
  if (typeof fallback === 'number') return { type: 'integer', minimum: 0 };
  return { type: typeof fallback };
}

export function generate(): { readme: string; schema: string } {
  const document = parseDocument(readFileSync(join(chart, 'values.yaml'), 'utf8'));
  const values: Value[] = [];
  const root = document.contents as YAMLMap;
  if (document.commentBefore && !root.commentBefore) root.commentBefore = document.commentBefore;
  const walked = walk(root, '', values);
  // Helm sets it.
  walked.properties.global = { type: 'object' };
  const schema = { $schema: 'http://json-schema.org/draft-07/schema#', ...walked };
  const cell = (it: string) => it.replaceAll('|', '\\|');
  const rows = values.map(({ path, description, fallback }) => {
    const shown = JSON.stringify(fallback);
    return `| \`${path}\` | \`${cell(shown)}\` | ${cell(description)} |`;
  });
  const readme = readFileSync(join(chart, 'README.md.tpl'), 'utf8').replace(
    '{{values}}',
    ['| value | default | meaning |', '| --- | --- | --- |', ...rows].join('\n'),
  );
  return { readme, schema: `${JSON.stringify(schema, null, 2)}\n` };
}

if (import.meta.main) {
  const { readme, schema } = generate();
  writeFileSync(join(chart, 'README.md'), readme);
  writeFileSync(join(chart, 'values.schema.json'), schema);
}
