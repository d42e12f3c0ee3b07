import { renderReason } from '../../floor/reasons.ts';
import type { Storage } from '../../storage/storage.ts';
import type { AssetVersion } from '../../store/database/schema.ts';
import type { DrillReport } from '../../store/drills/drill-report.ts';
import type { Store } from '../../store/store.ts';
import { compareAsset } from '../compare-asset.ts';
import { differencesAmong, type Finding } from '../finding.ts';
import { checkVersion } from './check-version.ts';

/** Nothing more is begun after this time, so that large files do not keep the drill busy for hours. */
const longestMs = 10 * 60_000;

/**
 * Reads all objects of these assets and versions, one after the other, and compares each byte by content hash, else by checksum.
 * `assets`, `objects`, `bytes` and `ms` do not include the versions.
 */
export async function readSample(
  deps: { store: Store; storage: Storage },
  {
    ids,
    versions,
    requested,
    signal,
  }: { ids: string[]; versions: AssetVersion[]; requested: number; signal: AbortSignal },
): Promise<DrillReport['sample']> {
  const found: DrillReport['sample'] = {
    requested,
    assets: 0,
    objects: 0,
    bytes: 0,
    ms: 0,
    versions: 0,
    damaged: [],
    unreadable: [],
  };
  const started = performance.now();
  const elapsed = () => Math.round(performance.now() - started);
  for (const id of ids) {
    if (elapsed() > longestMs) break;
    const asset = await deps.store.contents.get(id);
    if (!asset) continue;
    const { findings, counts } = await compareAsset(deps, asset, { deep: true, signal });
    if (findings.length === 0) continue;
    found.assets++;
    found.objects += findings.length;
    found.bytes += counts.bytesRead;
    addDifferences(found, id, findings);
  }
  found.ms = elapsed();
  for (const version of versions) {
    if (elapsed() > longestMs) break;
    addDifferences(found, version.assetId, await checkVersion(deps, version, { deep: true, signal }));
    found.versions++;
  }
  return found;
}

function addDifferences(
  { damaged, unreadable }: Pick<DrillReport['sample'], 'damaged' | 'unreadable'>,
  assetId: string,
  findings: Finding[],
): void {
  for (const { mark, key, reason } of differencesAmong(findings)) {
    const object = { assetId, key: key ?? '', text: reason ? renderReason(reason) : '' };
    (mark === '!' ? unreadable : damaged).push(object);
  }
}

/**
 * How long it takes to read all media at the measured rate: by assets or by bytes, the longer of both. Many small files cost
 * requests, few large ones bandwidth. Null: nothing was read.
 */
export function extrapolate(
  { assets, bytes, ms }: Pick<DrillReport['sample'], 'assets' | 'bytes' | 'ms'>,
  all: { assets: number; bytes: number },
): number | null {
  if (assets === 0 || bytes === 0) return null;
  return Math.round(ms * Math.max(all.assets / assets, all.bytes / bytes));
}
