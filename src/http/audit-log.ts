import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { storable } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Operations } from '../operations/operations.ts';
import { shownAddress } from '../webhook-address.ts';

/**
 * Writes each change by an operator, also a refused one, to the audit log before the answer is sent.
 * `operationId` of the route names the action.
 */
export function auditChanges(app: FastifyInstance, deps: { operations: Operations; log: Log }): void {
  app.addHook('onSend', async (request, reply, payload) => {
    const { operator, method } = request;
    const { operationId } = (request.routeOptions.schema ?? {}) as { operationId?: string };
    if (!operator || method === 'GET' || method === 'HEAD' || operationId === undefined) return payload;
    const { id } = (request.params ?? {}) as { id?: string };
    const [, of] = /\/(connections|assets|webhooks)\/:id/.exec(request.routeOptions.url ?? '') ?? [];
    const about = id !== undefined && of !== undefined ? { [subjects[of]!]: id } : {};
    try {
      await deps.operations.audit({
        action: operationId,
        by: operator,
        ...about,
        ...(request.body !== undefined &&
          request.body !== null && { request: withoutSecrets(operationId, request.body) }),
        status: reply.statusCode,
        requestId: request.id,
        ...refusalOf(reply.getHeader('content-type'), payload),
      });
    } catch (err) {
      // The change was made, so the answer must not say that it failed.
      deps.log.error(
        { event: 'audit_entry.lost', err, action: operationId, by: operator, status: reply.statusCode },
        'audit log entry lost',
      );
    }
    return payload;
  });
}

const subjects: Record<string, string> = { connections: 'connectionId', assets: 'assetId', webhooks: 'endpointId' };

/** Of an erased asset, only a hash may stay. The address of a webhook endpoint may have a secret. */
function withoutSecrets(operationId: string, body: unknown): unknown {
  const { assetIds, ...rest } = body as { assetIds?: unknown; url?: unknown };
  if (/webhook/i.test(operationId) && typeof rest.url === 'string') {
    return { ...rest, url: URL.canParse(rest.url) ? shownAddress(rest.url) : 'not an address' };
  }
  return /erase|erasure/i.test(operationId) && Array.isArray(assetIds) ? { ...rest, assets: assetIds.length } : body;
}

/** The code of the problem, and why, if it was refused. */
function refusalOf(type: unknown, payload: unknown): { code?: string; reason?: string } {
  if (!String(type).startsWith('application/problem+json') || typeof payload !== 'string') return {};
  const { data } = z.object({ code: z.string(), detail: z.string() }).safeParse(JSON.parse(payload));
  return data ? { code: data.code, reason: storable(data.detail) } : {};
}
