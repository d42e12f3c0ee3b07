import type { Passed } from '../proxy.ts';
import type { World } from '../world.ts';
import type { Finding, Row } from './finding.ts';
import { aftermath, clock, type Happened } from './history.ts';

const MiB = 2 ** 20;
/** Larger ones go in parts. */
const inParts = 32 * MiB;
/** A file that is replaced during a request may be fetched in its old version. */
const replacing = 3000;
/** Faults that make a complete answer of the library useless. */
const flawed = ['media-of-another-size', 'pages-for-files'];

/** The faults that made a fetch useless: those that interrupted it, or that lost its result. */
function causeOf({ whole, at, ended }: Passed, history: Happened[]): Happened | undefined {
  const parts = whole ? ['worker', 's3', 'postgres'] : ['worker', 's3', 'postgres', 'library', 'tokens'];
  return history.find(
    (fault) =>
      (parts.includes(fault.of) || (whole && flawed.includes(fault.name))) &&
      fault.from <= ended + 5000 &&
      fault.to >= at - 1000,
  );
}

/** Each fetch of a file beyond the first is explained by a fault of the previous one, or of its result. */
export function downloads(world: World, rows: Row[], history: Happened[]): Finding {
  const problems: string[] = [];
  const byId = new Map(rows.map((row) => [row.id, row]));
  const fetches = new Map<string, Passed[]>();
  for (const entry of world.libraryProxy.passed) {
    const id = /^\/media\/([^/]+)\/(original|mp4)$/.exec(entry.path)?.[1];
    // A request for the first byte finds the length.
    if (!id || ![200, 206].includes(entry.status) || entry.range === 'bytes=0-0') continue;
    fetches.set(decodeURIComponent(id), [...(fetches.get(decodeURIComponent(id)) ?? []), entry]);
  }
  let [files, again, bytes, needed] = [0, 0, 0, 0];
  for (const [id, all] of fetches) {
    const asset = world.content.held.get(id)!;
    const row = byId.get(id);
    const { versions, plan } = asset;
    bytes += all.reduce((sum, entry) => sum + entry.bytes, 0);
    for (const [v, since] of versions.entries()) {
      const mine = all.filter((entry) => entry.at >= since && entry.at < (versions[v + 1] ?? Number.POSITIVE_INFINITY));
      if (mine.length === 0) continue;
      files++;
      const size = plan.originalGone ? plan.mp4Size! : v === 0 ? plan.size : plan.replacedSize;
      needed += size;
      if (size > inParts) {
        // For a file in parts: as many bytes as its faults explain.
        const [from, to] = [mine[0]!.at, mine.at(-1)!.ended];
        const hits = history.filter((fault) => fault.from < to && fault.to + aftermath > from).length;
        const moved = mine.reduce((sum, entry) => sum + entry.bytes, 0);
        if (moved > size * (1 + hits))
          problems.push(`${id}: ${moved} bytes were fetched of ${size}, and ${hits} faults hit it`);
        if (moved > size) again++;
        continue;
      }
      for (const [n, entry] of mine.entries()) {
        if (n === 0) continue;
        again++;
        const before = mine[n - 1]!;
        const when = `${id}: fetched again at ${clock(entry.at)}`;
        const done = row?.mirrored_at?.getTime();
        if (versions.length === 1 && done && entry.at > done + 1000) {
          problems.push(`${when}, ${((entry.at - done) / 1000).toFixed(1)} s after it was mirrored`);
        } else if (!causeOf(before, history) && !(v > 0 && n === 1 && before.at < since + replacing)) {
          problems.push(
            `${when}, and no fault explains it (before: ${before.status}, ${before.whole ? 'whole' : 'cut'})`,
          );
        }
      }
    }
  }
  return {
    what: 'no file was downloaded again without a fault that explains it',
    seen: `${files} files; ${again} downloads repeated, ${(bytes / Math.max(1, needed)).toFixed(2)} times the bytes`,
    problems,
  };
}
