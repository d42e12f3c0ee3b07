import { z } from 'zod';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, text, time } from '../fields.ts';
import { numberIn } from '../pagination.ts';
import { Refused } from '../refused.ts';

export const changeQuery = z.strictObject({
  after: text
    .optional()
    .describe('The last `nextCursor`, or the `cursor` of a change; default: from the oldest change.'),
  limit: numberIn(1, 1000, 100),
});

const kinds = ['added', 'replaced', 'metadata', 'transcript', 'thumbnail', 'gone', 'erased'] as const;

const changeAnswer = z
  .object({
    cursor: z.string(),
    at: time,
    kind: z.enum(kinds),
    assetId: z.string(),
    connectionId: z.string().nullable(),
    companyId: z.string(),
    projectId: z.string().nullable(),
    name: z.string().nullable(),
    objects: z
      .array(z.object({ key: z.string(), bytes: count.nullable(), crc32: z.string().nullable() }))
      .describe('All objects of the asset, the media first; none if `gone` or `erased`.'),
  })
  .meta({ id: 'Change' });

export const changeList = z
  .object({
    changes: z.array(changeAnswer),
    nextCursor: z.string().describe('Pass it as `after` for the next changes. Without changes, it stays the same.'),
  })
  .meta({ id: 'ChangeList' });

export function changeOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** Changes of the copy, in the order of the feed. */
    async changes(query: z.input<typeof changeQuery> = {}) {
      const { after, limit } = changeQuery.parse(query);
      const page = await store.changes.page(after, limit);
      if (page === 'unknown') {
        throw new Refused(
          400,
          'invalid_cursor',
          'This is not a cursor of the feed. Pass nextCursor unchanged, or no cursor.',
        );
      }
      if (page === 'expired') {
        const why = 'Changes after this cursor are missing: it is too old, or of another database.';
        throw new Refused(410, 'cursor_expired', `${why} Begin again from the inventory.`);
      }
      return { ...page, changes: page.changes.map(isoTimes) };
    },
  };
}
