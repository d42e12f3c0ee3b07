import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';

export const typed = (app: FastifyInstance) => app.withTypeProvider<ZodTypeProvider>();
export type Api = ReturnType<typeof typed>;

type Tag =
  | 'access'
  | 'assets'
  | 'connections'
  | 'events'
  | 'removals'
  | 'service'
  | 'syncs'
  | 'verification'
  | 'webhooks';

/** A route as /openapi.json describes it. `operationId` also names the operator's action in the audit log. */
export const route = <Schema extends { response: object; [part: string]: unknown }>(
  tag: Tag,
  operationId: string,
  summary: string,
  schema: Schema,
) => ({
  schema: { tags: [tag], operationId, summary, ...schema },
});
