import type { World } from '../world.ts';
import type { Finding, Row } from './finding.ts';
import { aftermath, type Happened, overlaps } from './history.ts';
import type { Objects } from './objects.ts';

export async function nothingElse(world: World, rows: Row[], there: Map<string, number>): Promise<Finding> {
  const known = new Set(
    rows.flatMap((row) => [row.media?.key, row.record_key, row.thumbnail?.key, ...(row.transcript_keys ?? [])]),
  );
  // Stored, but removed at the library before that was recorded.
  const abandoned = rows
    .filter((row) => !row.record_key && row.state !== 'mirrored' && world.content.held.get(row.id)?.removed)
    .map((row) => `/${row.id}/`);
  const unvouched = (key: string) => abandoned.some((place) => key.includes(place));
  const unknownKeys = [...there.keys()].filter((key) => !known.has(key) && !key.startsWith('_mirror/'));
  const strange = unknownKeys.filter((key) => !unvouched(key));
  const left = unknownKeys.length - strange.length;
  const ids = new Set(world.content.held.keys());
  const unknown = rows.filter((row) => !ids.has(row.id));
  return {
    what: 'the bucket has no object without a record',
    seen: `${there.size} objects${left > 0 ? `; ${left} of them of files that were deleted in the library meanwhile` : ''}`,
    problems: [
      ...strange.map((key) => `nobody knows ${key}`),
      ...unknown.map((row) => `the library never had ${row.id}`),
    ],
  };
}

export async function uploads(rows: Row[], objects: Objects, history: Happened[]): Promise<Finding> {
  const known = new Set(rows.map((row) => row.upload?.id));
  const left = (await objects.uploads()).filter(({ id }) => !known.has(id));
  // A process died before it recorded this upload: the sweep removes it when it is old enough.
  const caused = left.filter(({ begun }) => begun && overlaps(history, begun - aftermath, begun + aftermath));
  const orphans = left.filter((upload) => !caused.includes(upload));
  return {
    what: 'the bucket has no abandoned upload',
    seen: caused.length > 0 ? `${caused.length} of killed processes, which the sweep will remove` : 'none',
    problems: orphans.map(({ key }) => `an upload to ${key} is under way, and nobody knows why`),
  };
}
