import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** A listing is given up after more than this many pages in a row without a new asset. */
const idlePages = 1000;

/** How far a listing has come: the assets that it had, and the pages without a new one. */
export interface Progress {
  assets: number;
  idlePages: number;
}

/**
 * Follows the cursors of one listing (spec, section 4.6). The value of a cursor says nothing, for a service may use one
 * value for all pages. A listing ends where no next cursor is given, or when a request is answered as it was before.
 * `what` begins the message of an error; `before` is the progress of a listing that was interrupted.
 */
export function followCursors(what: string, before: Progress = { assets: 0, idlePages: 0 }) {
  // 21 MB for a million assets. Two ids with the same checksum only make a new asset look like a known one, here.
  const assets = new Set<number>();
  /** Digests of the pages since the last one with a new asset, which comes first. */
  const pages = new Set<string>();
  let idleInAll = before.idlePages;

  return {
    /**
     * Says what follows a page that was requested with `cursor`. `next`: the cursor to go on with, or undefined at the end;
     * `isNew`: the page has assets that this listing did not have; `repeats`: exactly this page was there before;
     * `isDoubtful`: the listing ended there, and there may be more.
     * @throws if the listing goes on without new assets
     */
    after(cursor: string | undefined, { ids, nextCursor }: { ids: string[]; nextCursor: string | undefined }) {
      const known = assets.size;
      for (const id of ids) assets.add(crc32(id) | 0);
      const isNew = assets.size > known;
      if (isNew) pages.clear();
      else idleInAll++;
      const page = createHash('sha256')
        .update(JSON.stringify([cursor, ids.toSorted(), nextCursor]))
        .digest('base64');
      const repeats = pages.has(page);
      pages.add(page);
      if (nextCursor === undefined || repeats) {
        const [lastNew] = pages;
        const standsStill = nextCursor === cursor && (ids.length === 0 || page === lastNew);
        return { next: undefined, isNew, repeats, isDoubtful: repeats && !standsStill };
      }
      if (pages.size > idlePages || idleInAll > idlePages + before.assets + assets.size) {
        throw new Error(`${what}: the listing does not end: ${idleInAll} of its pages had no new asset`);
      }
      return { next: nextCursor, isNew, repeats, isDoubtful: false };
    },

    /** For the run that continues the listing. */
    progress: (): Progress => ({ assets: before.assets + assets.size, idlePages: idleInAll }),
  };
}

/** What a run says of a doubtful end. */
export const doubtfulEnd =
  'the last page leads back to an earlier one; if there are more, the service does not give them';
