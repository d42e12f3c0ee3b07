import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { KnownError } from '../floor/errors.ts';

/** A listing is given up after more than this many pages in a row without a new asset. */
const mostIdlePages = 200;

/** The progress of a listing: its assets so far, and its pages without a new one. */
export interface Progress {
  assets: number;
  idlePages: number;
}

/**
 * Follows the cursors of one listing (spec, section 4.6). Equal cursors need not mean the end: a library may use one value
 * for all pages. A listing ends if there is no next cursor, or if a request gets the same answer as before.
 * `what` begins each error message; `before`: the progress of an interrupted listing.
 */
export function followCursors(what: string, before: Progress = { assets: 0, idlePages: 0 }) {
  // Checksums: 21 MB for a million assets. If two ids have the same checksum, a new asset may seem known.
  const assets = new Set<number>();
  /** Digests of the pages since the last one with a new asset, which comes first. */
  const digests = new Set<string>();
  let idleInAll = before.idlePages;

  return {
    /**
     * Where to continue after the page that was requested with `cursor`. `next`: the next cursor, or undefined at the end;
     * `isNew`: the page has assets that no earlier page had; `repeats`: it equals an earlier page; `isDoubtful`: the listing
     * ends here, but there may be more. @throws KnownError if it does not end, although it has no new assets
     */
    after(cursor: string | undefined, { ids, nextCursor }: { ids: string[]; nextCursor: string | undefined }) {
      const known = assets.size;
      for (const id of ids) assets.add(crc32(id) | 0);
      const isNew = assets.size > known;
      if (isNew) digests.clear();
      else idleInAll++;
      const digest = createHash('sha256')
        .update(JSON.stringify([cursor, ids.toSorted(), nextCursor]))
        .digest('base64');
      const repeats = digests.has(digest);
      digests.add(digest);
      if (nextCursor === undefined || repeats) {
        const [lastNew] = digests;
        const repeatsLast = nextCursor === cursor && (ids.length === 0 || digest === lastNew);
        return { next: undefined, isNew, repeats, isDoubtful: repeats && !repeatsLast };
      }
      // A whole listing may have at most this many more idle pages than assets.
      if (digests.size > mostIdlePages || idleInAll > mostIdlePages + before.assets + assets.size) {
        throw new KnownError({ code: 'endless_listing', request: what, idlePages: idleInAll });
      }
      return { next: nextCursor, isNew, repeats, isDoubtful: false };
    },

    /** For the run that resumes the listing. */
    progress: (): Progress => ({ assets: before.assets + assets.size, idlePages: idleInAll }),
  };
}
