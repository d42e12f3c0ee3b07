import type { FastifyInstance } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { z } from 'zod';
import { idParams } from '../../operations/fields.ts';
import { type RefusedStatus, refused, type tags } from '../openapi.ts';

export const typed = (app: FastifyInstance) => app.withTypeProvider<ZodTypeProvider>();
export type Api = ReturnType<typeof typed>;

/** Routes as /openapi.json describes them. `operationId` also names the operator's action in the audit log. */
export const routesOf =
  (tag: (typeof tags)[number]['name']) =>
  <Schema extends { response: object; [part: string]: unknown }>(
    operationId: string,
    summary: string,
    schema: Schema,
  ) => ({ schema: { tags: [tag], operationId, summary, ...schema } });

/** The schema of a route that answers with 200, or with these errors. */
export const answering = <Answer extends z.ZodType, const Statuses extends readonly RefusedStatus[]>(
  answer: Answer,
  ...statuses: Statuses
) => ({ response: { 200: answer, ...refused(...statuses) } });

/** `answering` for a route with an id in its path. */
export const ofOne = <Answer extends z.ZodType, const Statuses extends readonly RefusedStatus[]>(
  answer: Answer,
  ...statuses: Statuses
) => ({ params: idParams, ...answering(answer, ...statuses) });
