import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { storableText } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import type { Operations } from '../operations/operations.ts';
import { shownAddress } from '../store/events/webhook-address.ts';
import { changedValues, currentValues } from './changed-values.ts';
import { operationIdOf } from './sign-in/access.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** The values that the operation may change, as they were. */
    valuesBefore?: Record<string, unknown> | undefined;
  }
}

interface Deps {
  operations: Operations;
  log: Log;
}

/**
 * Writes each change by an operator to the audit log before the answer is sent; also a refused one, and any request for which
 * the role was too low. `operationId` of the route names the action.
 */
export function auditChanges(app: FastifyInstance, deps: Deps): void {
  app.addHook('preHandler', async (request) => {
    if (isChange(request)) request.valuesBefore = await currentValues(request, deps.operations);
  });
  app.addHook('onSend', async (request, reply, payload) => {
    const refusal = refusalOf(reply.getHeader('content-type'), payload);
    if (!request.operator || !(isChange(request) || refusal.code === 'role_too_low')) return payload;
    await add(deps, request, { status: reply.statusCode, ...refusal, ...createdIdOf(reply.statusCode, payload) });
    return payload;
  });
}

/** These operations only read. They use POST because their requests do not fit into an address. */
const reads: ReadonlySet<string | undefined> = new Set(['previewErasure', 'getAssetZipOf']);

const isChange = (request: FastifyRequest) =>
  request.method !== 'GET' && request.method !== 'HEAD' && !reads.has(operationIdOf(request));

async function add(
  { operations, log }: Deps,
  request: FastifyRequest,
  { createdId, ...outcome }: { status: number; code?: string; reason?: string; createdId?: string },
): Promise<void> {
  const action = operationIdOf(request);
  if (action === undefined) return;
  const { operator, body, ip: address, id: requestId } = request;
  const target = targetOf(request);
  // The answer of a retry repeats the id of the asset. It is saved only as `assetId`, where an erasure finds it.
  const createsAnother = createdId !== undefined && !('assetId' in target);
  try {
    await operations.audit({
      action,
      operator,
      address,
      requestId,
      ...target,
      ...(createsAnother && { targetId: createdId }),
      // A wrong request may have a secret in any field.
      ...(body !== undefined && body !== null && outcome.status !== 400 && { request: withoutSecrets(action, body) }),
      ...(outcome.status < 400 && (await changedValues(request, operations))),
      ...outcome,
      // The reason may name an asset that was erased before.
      ...(isErasure(action) && { reason: undefined }),
    });
  } catch (err) {
    // The change was made, so the answer must not say that it failed.
    log.error(
      { event: 'audit_entry.lost', err, action, by: operator?.name, status: outcome.status, requestId },
      'audit log entry lost',
    );
  }
}

/** What the request is about: the id in its path. */
function targetOf({ params, routeOptions: { url = '' } }: FastifyRequest) {
  const { id } = (params ?? {}) as { id?: string };
  if (id === undefined) return {};
  if (url.includes('/connections/')) return { connectionId: id };
  return url.includes('/assets/') ? { assetId: id } : { targetId: id };
}

const isErasure = (operationId: string) => /erase|erasure/i.test(operationId);

/** The request, without the ids of erased assets (only hashes may stay) and without secrets in the address of a webhook endpoint. */
function withoutSecrets(operationId: string, body: unknown): unknown {
  const { assetIds, ...rest } = body as { assetIds?: unknown; url?: unknown };
  if (/webhook/i.test(operationId) && typeof rest.url === 'string') {
    return { ...rest, url: URL.canParse(rest.url) ? shownAddress(rest.url) : 'not an address' };
  }
  return isErasure(operationId) && Array.isArray(assetIds) ? { ...rest, assets: assetIds.length } : body;
}

/** The id of what was created or started. */
function createdIdOf(status: number, payload: unknown): { createdId?: string } {
  if ((status !== 201 && status !== 202) || typeof payload !== 'string') return {};
  const { data } = z
    .object({ id: z.string().optional(), syncId: z.string().optional() })
    .safeParse(JSON.parse(payload));
  const createdId = data?.id ?? data?.syncId;
  return createdId === undefined ? {} : { createdId };
}

/** The code of the problem, and why, if it was refused. */
function refusalOf(type: unknown, payload: unknown): { code?: string; reason?: string } {
  if (!String(type).startsWith('application/problem+json') || typeof payload !== 'string') return {};
  const { data } = z.object({ code: z.string(), detail: z.string() }).safeParse(JSON.parse(payload));
  return data ? { code: data.code, reason: storableText(data.detail) } : {};
}
