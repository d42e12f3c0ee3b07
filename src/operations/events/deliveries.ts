import { z } from 'zod';
import { deliveryStates } from '../../store/events/delivery-log.ts';
import type { OperationsDeps } from '../deps.ts';
import { count, isoTimes, text, time } from '../fields.ts';
import { givenCursor, nextCursor, pageOf, positionOf, rowsOfPage } from '../pagination.ts';
import { Refused } from '../refused.ts';
import { existingWebhook } from './webhooks.ts';

export const deliveryQuery = z.strictObject({
  state: z.enum(deliveryStates).optional(),
  cursor: givenCursor,
  limit: rowsOfPage(50),
});

export const deliveryList = z
  .object({
    deliveries: z.array(
      z.object({
        id: z.string().describe('The `webhook-id` of the message.'),
        state: z.enum(deliveryStates).describe('`failed`: asset-mirror gave up after 3 days.'),
        kind: z.string(),
        at: time.describe('When the event happened.'),
        connectionId: z.string().nullable(),
        assetId: z.string().nullable(),
        attempts: count,
        attemptedAt: time.nullable().describe('When the last attempt ended.'),
        status: z.int().nullable().describe('The HTTP status of its answer; null: there was none.'),
        error: z.string().nullable().describe('Why it was not accepted.'),
        ms: count.nullable().describe('How long it took, in milliseconds.'),
        nextAt: time.nullable().describe('When it is tried again.'),
      }),
    ),
    nextCursor,
  })
  .meta({ id: 'DeliveryList' });

export const redeliverRequest = z
  .union([
    z.strictObject({ messageId: text }),
    z.strictObject({
      failedSince: z
        .union([z.iso.datetime({ offset: true }), z.iso.date()])
        .describe('Send all failed messages of events since this time.'),
    }),
  ])
  .meta({ id: 'RedeliverRequest' });
export const redeliverAnswer = z.object({ redelivered: count }).meta({ id: 'Redelivered' });

const position = z.object({ at: z.int(), id: text });

export const deliveryOperations = ({ store }: Pick<OperationsDeps, 'store'>) => ({
  /** A page of the log of a webhook endpoint, newest events first. */
  async deliveries(endpointId: string, query: z.input<typeof deliveryQuery> = {}) {
    const { state, cursor, limit } = deliveryQuery.parse(query);
    await existingWebhook(store, endpointId);
    const found = await store.webhooks.log(endpointId, {
      state,
      before: positionOf(cursor, position),
      limit: limit + 1,
    });
    const page = pageOf(found, limit, (last) => ({ at: last.position, id: last.id }));
    return {
      deliveries: page.rows.map(({ position: _, nextAt, ...delivery }) => ({
        ...isoTimes(delivery),
        nextAt: delivery.state === 'waiting' ? nextAt.toISOString() : null,
      })),
      nextCursor: page.nextCursor,
    };
  },

  /** Sends messages again, with the same ids. */
  async redeliver(endpointId: string, request: z.infer<typeof redeliverRequest>) {
    const { enabled, goneAt } = await existingWebhook(store, endpointId);
    if (!enabled || goneAt) {
      throw new Refused(
        409,
        'webhook_disabled',
        `This endpoint is disabled, or has answered 410 (Gone). Enable it first with \`asset-mirror webhooks set ${endpointId} --enable\`; for the endpoint of WEBHOOK_URL, restart asset-mirror.`,
      );
    }
    const isOne = 'messageId' in request;
    const which = isOne ? request : { failedSince: new Date(request.failedSince) };
    const redelivered = await store.webhooks.redeliver(endpointId, which);
    if (isOne && redelivered === 0) {
      throw new Refused(
        404,
        'message_not_found',
        `The log of this endpoint has no message ${request.messageId}. List them with \`asset-mirror webhooks deliveries\`.`,
      );
    }
    return { redelivered };
  },
});
