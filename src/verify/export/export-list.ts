import type { NotCopied } from '../copy/copy-each.ts';
import type { ExportedAsset, Facts } from './select-exports.ts';

const facts: (keyof Facts)[] = [
  ...(['name', 'type', 'mimeType', 'company', 'companyId', 'project', 'projectId', 'uploadDate'] as const),
];

/** The first line of a manifest (CSV, RFC 4180). */
export const manifestHead = lineOf(['path', 'bytes', 'crc32', 'assetId', ...facts, 'key']);

/** The lines of an asset: one for each file. */
export const manifestLines = (asset: ExportedAsset): string =>
  asset.files
    .map(({ to, at, bytes, crc32 }) =>
      lineOf([to, bytes, crc32, asset.assetId, ...facts.map((fact) => asset.facts[fact]), at]),
    )
    .join('');

/** The assets that are not in an archive, and why. */
export const missingList = (missing: NotCopied[]): string =>
  [['assetId', 'reason'], ...missing.map(({ assetId, problem }) => [assetId, problem])].map(lineOf).join('');

/** A spreadsheet must not take what users wrote for a formula. */
function harmless(text: string): string {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

function lineOf(values: unknown[]): string {
  return `${values.map(quoted).join(',')}\r\n`;
}

function quoted(value: unknown): string {
  const text = value === null || value === undefined ? '' : harmless(String(value));
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
