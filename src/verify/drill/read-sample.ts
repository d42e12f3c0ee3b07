import type { DrillReport } from '../../drill-report.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import { inspectAsset } from '../inspect-asset.ts';

/** No asset is begun after this time, so that large files do not keep the drill busy for hours. */
const longestMs = 10 * 60_000;

/** Reads all objects of these assets, one asset after the other, and compares each byte by content hash, else by checksum. */
export async function readSample(
  deps: { store: Store; storage: Storage },
  { ids, requested, signal }: { ids: string[]; requested: number; signal: AbortSignal },
): Promise<DrillReport['sample']> {
  const found: DrillReport['sample'] = {
    requested,
    assets: 0,
    objects: 0,
    bytes: 0,
    ms: 0,
    damaged: [],
    unreadable: [],
  };
  const started = performance.now();
  for (const id of ids) {
    if (performance.now() - started > longestMs) break;
    const asset = await deps.store.contents.get(id);
    if (!asset) continue;
    const { findings, inspection } = await inspectAsset(deps, asset, { deep: true, signal });
    if (findings.length === 0) continue;
    found.assets++;
    found.objects += findings.length;
    found.bytes += inspection.counts.bytesRead;
    for (const finding of findings) {
      if (!finding?.difference) continue;
      const object = { assetId: id, key: finding.key ?? '', text: finding.text ?? '' };
      (finding.mark === '!' ? found.unreadable : found.damaged).push(object);
    }
  }
  return { ...found, ms: Math.round(performance.now() - started) };
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
