import { type DrillFailure, type DrillReport, losses } from '../../drill-report.ts';
import type { Store } from '../../store/store.ts';

const pageSize = 2000;
const mostExamples = 50;

/** What was found out about the records: `sample` has ids of assets, each chosen with the same probability. */
export interface RecordsCompared {
  counts: Map<DrillFailure, number>;
  loss: Omit<DrillReport['loss'], 'onlyInDatabase'>;
  sample: string[];
}

/** Compares what a rebuild has restored into the scratch schema with the database, page by page. */
export async function compareRecords(
  store: Pick<Store, 'drills'>,
  { schema, startedAt, sample, signal }: { schema: string; startedAt: Date; sample: number; signal: AbortSignal },
): Promise<RecordsCompared> {
  const counts = new Map<DrillFailure, number>();
  const examples: RecordsCompared['loss']['examples'] = [];
  const chosen: string[] = [];
  const assets = { compared: 0, inProgress: 0 };
  let after = '';
  let isMore = true;
  let oldest: Date | undefined;
  while (isMore) {
    signal.throwIfAborted();
    const page = await store.drills.compare({ schema, startedAt, after, limit: pageSize });
    for (const { id, key, code, since, inProgress: isInProgress } of page) {
      choose(chosen, id, assets.compared++, sample);
      if (code === null) continue;
      if (isInProgress) {
        assets.inProgress++;
        continue;
      }
      counts.set(code, (counts.get(code) ?? 0) + 1);
      if (losses.has(code) && (!oldest || since < oldest)) oldest = since;
      if (examples.length < mostExamples) examples.push({ assetId: id, key, code, since: since.toISOString() });
    }
    after = page.at(-1)?.id ?? after;
    isMore = page.length === pageSize;
  }
  const { versions, tombstones, oldest: other } = await store.drills.missing({ schema, startedAt });
  if (versions > 0) counts.set('version_missing', versions);
  if (tombstones > 0) counts.set('tombstone_missing', tombstones);
  if (other && (!oldest || other < oldest)) oldest = other;
  return { counts, loss: { ...assets, oldest: oldest?.toISOString() ?? null, examples }, sample: chosen };
}

/** Reservoir sampling (Vitter, algorithm R): each of the ids seen so far is among the chosen with the same probability. */
function choose(chosen: string[], id: string, seenBefore: number, size: number): void {
  if (chosen.length < size) chosen.push(id);
  else {
    const place = Math.floor(Math.random() * (seenBefore + 1));
    if (place < size) chosen[place] = id;
  }
}
