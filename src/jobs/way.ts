import { createHash } from 'node:crypto';

/** A listing that gives this many pages in a row without anything new in them, as far as this way has seen, does not end. */
const idlePages = 1000;

/**
 * The way through a listing, from cursor to cursor. It ends where no cursor is given, or one that was used before. Only
 * digests are kept: a million assets are ten thousand pages.
 */
export function createWay() {
  const digests = new Set<string>();
  let idle = 0;

  const digest = (text: string) => createHash('sha256').update(text).digest('base64url').slice(0, 16);
  /** Whether it was there before; it is from now on. */
  function before(text: string): boolean {
    const known = digests.size;
    digests.add(digest(text));
    return digests.size === known;
  }

  return {
    /**
     * What comes behind a page that `cursor` was given for, with these assets on it. `again`: it was there before. `back`:
     * it leads to an earlier page, and nobody knows whether something lies behind it. A last page may well repeat its own
     * cursor.
     * @throws when the listing goes on and on, and brings nothing
     */
    behind(cursor: string | undefined, page: { ids: string[]; nextCursor: string | undefined }) {
      if (cursor !== undefined) before(`cursor ${cursor}`);
      const again = page.ids.length > 0 && before(`page ${page.ids.join(' ')}`);
      idle = page.ids.length === 0 || again ? idle + 1 : 0;
      if (idle > idlePages) throw new Error('the listing goes on without end');
      const { nextCursor } = page;
      const used = nextCursor !== undefined && digests.has(digest(`cursor ${nextCursor}`));
      return { next: used ? undefined : nextCursor, again, back: used && (nextCursor !== cursor || again) };
    },
  };
}

/** Of a listing that leads back, for people. */
export const leadsBack =
  'the last page leads back to an earlier one; should something lie behind it, the service hides it';
