import { type Finding, findingsOn } from '../floor/finding.ts';
import { bucketIdKey } from './keys.ts';

/** Findings of `doctor` about a bucket or a directory. */
export const { note, ok, wrong } = findingsOn('bucket');

/**
 * Whether the id in the bucket is that of the records. `known`: undefined if the records have none, null if they could not
 * be read.
 */
export function mirrorIdFinding(found: string | undefined, known: string | null | undefined): Finding {
  const what = 'mirror id';
  if (known === null) {
    const state = found ? `the bucket has ${found}` : 'the bucket has none';
    return note(what, `${state}; the database could not be read to compare it`);
  }
  if (known === undefined) {
    if (!found) return ok(what, 'none yet; the first start writes it');
    const remedy = 'asset-mirror rebuild, if the database was lost; else correct DATABASE_URL or STORAGE_URL';
    return wrong(what, 'the bucket belongs to a mirror already, and the database is new: all work waits', remedy);
  }
  if (found === known) return ok(what, 'the bucket belongs to this database');
  return wrong(
    what,
    found
      ? `its object ${bucketIdKey} says ${found}, the database expects ${known}`
      : `there is no object ${bucketIdKey}`,
    `mount the disk, or correct STORAGE_URL; if it was emptied on purpose, put an object ${bucketIdKey} there with this content: ${known}`,
  );
}
