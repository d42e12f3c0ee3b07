import { z } from 'zod';
import type { Event } from '../store/database/schema.ts';
import type { EventPlace } from '../store/events/events.ts';
import type { OperationsDeps } from './deps.ts';
import { text, time } from './fields.ts';
import { nextCursor, pageOf, placeOf, rowsOfPage } from './pages.ts';

export const eventQuery = z.strictObject({
  connectionId: text.optional(),
  assetId: text.optional(),
  kind: text.optional(),
  cursor: text.optional(),
  limit: rowsOfPage(50),
});
export type EventQuery = z.input<typeof eventQuery>;

export const eventAnswer = z
  .object({
    id: z.int(),
    at: time,
    kind: z.string().describe('Such as `connection.disconnected`, `asset.failed`, `operator.pauseConnection`.'),
    connectionId: z.string().nullable(),
    assetId: z.string().nullable(),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: 'Event' });

export const eventList = z.object({ events: z.array(eventAnswer), nextCursor }).meta({ id: 'EventList' });

/** Who did what, to what, and how that ended. */
export interface Deed {
  action: string;
  by: 'token' | 'session';
  connectionId?: string | undefined;
  assetId?: string | undefined;
  /** What was asked for, without secrets. */
  request?: unknown;
  status: number;
  /** In the log, too. */
  requestId?: string | undefined;
  /** Of the problem, when it was refused. */
  code?: string | undefined;
}

/** A request longer than this is not kept with its deed. */
const longestRequest = 4000;

export function eventOperations({ store }: Pick<OperationsDeps, 'store'>) {
  return {
    /** A page of what happened, the newest first. */
    async events(query: EventQuery = {}) {
      const { cursor, limit, ...filter } = eventQuery.parse(query);
      const before = placeOf(cursor, z.int());
      const page = pageOf(await store.events.search({ ...filter, before, limit: limit + 1 }), limit, (last) => last.id);
      return { events: page.rows.map(describeEvent), nextCursor: page.nextCursor };
    },

    /** Where following begins: behind the event with this mark (`mark` of an event that was followed), or now. */
    followFrom: (mark?: string) => store.events.place(placeBehind(mark)),

    /** The next events behind a place, oldest first, each with its mark and its place. */
    async follow(place: EventPlace, limit: number) {
      const found = await store.events.since(place, limit);
      return found.map(({ xact, ...event }) => ({
        event: describeEvent(event),
        mark: `${xact}-${event.id}`,
        place: { xact, id: event.id },
      }));
    },

    /** Calls `heard` when there are new events. Returns how to stop that. */
    onEvents: (heard: () => void) => store.onEvents(heard),

    /** Writes down what an operator did. */
    async writeDown({ action, connectionId, assetId, request, code, ...how }: Deed): Promise<void> {
      const short = request !== undefined && JSON.stringify(request).length <= longestRequest;
      await store.events.add({
        kind: `operator.${action}`,
        ...(connectionId !== undefined && { connectionId }),
        ...(assetId !== undefined && { assetId }),
        data: {
          ...how,
          outcome: how.status < 400 ? 'done' : 'refused',
          ...(code !== undefined && { code }),
          ...(request !== undefined && { request: short ? request : 'too long to be kept' }),
        },
      });
    },
  };
}

function placeBehind(mark: string | undefined): EventPlace | undefined {
  const [, xact, id] = /^(\d{1,19})-(\d{1,15})$/.exec(mark ?? '') ?? [];
  return xact === undefined ? undefined : { xact, id: Number(id) };
}

const describeEvent = ({ id, at, kind, connectionId, assetId, data }: Event) => ({
  id,
  at: at.toISOString(),
  kind,
  connectionId,
  assetId,
  data,
});
