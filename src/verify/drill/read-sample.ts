import type { DrillReport } from '../../drill-report.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import { inspect } from '../compare-objects.ts';
import { nothingFound } from '../counts.ts';
import { expectedOf } from '../expected-objects.ts';

/** No asset is begun after this time, so that large files do not keep the drill busy for hours. */
const longestMs = 10 * 60_000;

/** Reads all objects of these assets, one asset after the other, and compares each byte by content hash, else by checksum. */
export async function readSample(
  deps: { store: Store; storage: Storage },
  { ids, requested, signal }: { ids: string[]; requested: number; signal: AbortSignal },
): Promise<DrillReport['sample']> {
  const found: DrillReport['sample'] = { requested, assets: 0, objects: 0, bytes: 0, ms: 0, damaged: [] };
  const counts = { ...nothingFound };
  const started = performance.now();
  for (const id of ids) {
    if (performance.now() - started > longestMs) break;
    const asset = await deps.store.contents.get(id);
    const pairs = asset ? expectedOf(asset).map((left) => ({ key: left.key, left, right: 'unlisted' as const })) : [];
    if (pairs.length === 0) continue;
    const lines = await inspect(deps, pairs, {
      ...{ deep: true, skipForeign: true, counts, verified: [], copied: [], hashed: [], signal },
    });
    found.assets++;
    found.objects += pairs.length;
    for (const line of lines) {
      if (line?.difference) found.damaged.push({ assetId: id, key: line.key ?? '', text: line.text ?? '' });
    }
  }
  return { ...found, bytes: counts.bytesRead, ms: Math.round(performance.now() - started) };
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
