import { z } from 'zod';
import type { Position } from '../../store/database/position.ts';
import type { Event } from '../../store/database/schema.ts';
import { existingAsset } from '../assets/assets.ts';
import { existingConnection } from '../connections/connections.ts';
import { tagsAnswer } from '../connections/tags.ts';
import type { OperationsDeps } from '../deps.ts';
import { text, time } from '../fields.ts';
import { givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';

export const eventQuery = z.strictObject({
  connectionId: text.optional(),
  assetId: text.optional(),
  kind: text.optional(),
  cursor: givenCursor,
  limit: rowsOfPage(50),
});
export type EventQuery = z.input<typeof eventQuery>;
export type EventFilter = Pick<EventQuery, 'connectionId' | 'assetId' | 'kind'>;

export const eventAnswer = z
  .object({
    id: z.int(),
    at: time,
    kind: z.string().describe('Such as `connection.disconnected`, `asset.failed`, `operator.pauseConnection`.'),
    connectionId: z.string().nullable(),
    tags: tagsAnswer,
    assetId: z.string().nullable(),
    data: z.record(z.string(), z.unknown()),
  })
  .meta({ id: 'Event' });

export const eventList = z.object({ events: z.array(eventAnswer), nextCursor }).meta({ id: 'EventList' });

export function eventOperations({ store }: Pick<OperationsDeps, 'store'>) {
  /** @throws Refused 404 for an unknown id */
  async function checkIds({ connectionId, assetId }: EventFilter): Promise<void> {
    if (connectionId !== undefined) await existingConnection(store, connectionId);
    if (assetId !== undefined) await existingAsset(store, assetId);
  }
  async function described(events: Event[]) {
    const ids = new Set(events.flatMap(({ connectionId }) => connectionId ?? []));
    const tags = await store.connections.tagsOf([...ids]);
    return events.map(({ id, at, kind, connectionId, assetId, data }) => ({
      id,
      at: at.toISOString(),
      kind,
      connectionId,
      tags: tags.get(connectionId ?? '') ?? {},
      assetId,
      data: kind.startsWith('operator.') ? withoutDetails(data) : data,
    }));
  }

  return {
    /** A page of events, newest first. */
    async events(query: EventQuery = {}) {
      const { cursor, limit, ...filter } = eventQuery.parse(query);
      const before = positionOf(cursor, z.int());
      const page = pageOf(await store.events.search({ ...filter, before, limit: limit + 1 }), limit, (last) => last.id);
      if (page.rows.length === 0) await checkIds(filter);
      return { events: await described(page.rows), nextCursor: page.nextCursor };
    },

    /** The position where following the events of `filter` begins: after the event with this cursor, or now. */
    async followFrom(filter: EventFilter, cursor?: string) {
      await checkIds(filter);
      return store.events.startingPosition(positionAfter(cursor));
    },

    /** The next events after a position, oldest first, each with its cursor and position. */
    async follow(position: Position, limit: number) {
      const found = await store.events.since(position, limit);
      const events = await described(found);
      return found.map(({ xact, id }, index) => ({
        event: events[index]!,
        cursor: `${xact}-${id}`,
        position: { xact, id },
      }));
    },

    /** Calls `listener` when there are new events. Returns a function that stops that. */
    onEvents: (listener: () => void) => store.onEvents(listener),
  };
}

/** The part of an audit entry that everyone may see. The audit log has the rest. */
function withoutDetails({ by, outcome, code, reason, requestId }: Record<string, unknown>): Record<string, unknown> {
  const { name = null } = (by ?? {}) as { name?: string };
  return { by: name, outcome, code, ...(name !== null && { reason }), requestId };
}

function positionAfter(cursor: string | undefined): Position | undefined {
  const [, xact, id] = /^(\d{1,19})-(\d{1,15})$/.exec(cursor ?? '') ?? [];
  return xact === undefined ? undefined : { xact, id: Number(id) };
}
