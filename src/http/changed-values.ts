import { isDeepStrictEqual } from 'node:util';
import type { FastifyRequest } from 'fastify';
import type { Operations } from '../operations/operations.ts';
import type { Asker } from '../operations/operators/sessions.ts';
import { operationIdOf } from './sign-in/access.ts';

type Values = Record<string, unknown>;

const pick = <T>(from: T, ...names: (keyof T)[]): Values => Object.fromEntries(names.map((name) => [name, from[name]]));

async function ofConnection(operations: Operations, id: string): Promise<Values> {
  const { status, tags, settings } = await operations.connection(id);
  return { status, tags, ...settings };
}
async function ofWebhook(operations: Operations, id: string): Promise<Values | undefined> {
  const { webhooks } = await operations.webhooks();
  const found = webhooks.find((webhook) => webhook.id === id);
  return found && pick(found, 'url', 'kinds', 'filters', 'description', 'enabled');
}
async function ofToken(operations: Operations, idOrName: string): Promise<Values | undefined> {
  const { tokens } = await operations.tokens();
  const found = tokens.find(({ id, name }) => id === idOrName || name === idOrName);
  return found && pick(found, 'name', 'role', 'expiresAt');
}

async function ofSession(operations: Operations, id: string, operator: Asker): Promise<Values | undefined> {
  const found = await operations.session(id, operator);
  return found && pick(found, 'name', 'subject', 'role', 'address');
}

/** How to read the values that an operation changes. `id`: from the path of the request. */
const readers: Record<string, (operations: Operations, id: string, operator: Asker) => Promise<Values | undefined>> = {
  changeConnection: ofConnection,
  pauseConnection: ofConnection,
  resumeConnection: ofConnection,
  disconnectConnection: ofConnection,
  changeSettings: async (operations) => ({ ...(await operations.settings()) }),
  changeWebhook: ofWebhook,
  removeWebhook: ofWebhook,
  revokeToken: ofToken,
  endSession: ofSession,
};

/** The values as they are now; undefined if the operation changes none, or nothing has this id. */
export async function currentValues(request: FastifyRequest, operations: Operations): Promise<Values | undefined> {
  const { id = '' } = (request.params ?? {}) as { id?: string };
  return readers[operationIdOf(request) ?? '']?.(operations, id, request.operator!).catch(() => undefined);
}

/** The values that differ now from those before. A change by somebody else in between counts as one of this request. */
export async function changedValues(request: FastifyRequest, operations: Operations) {
  const { valuesBefore: before } = request;
  if (!before) return {};
  const after = (await currentValues(request, operations)) ?? {};
  const names = Object.keys({ ...before, ...after }).filter((name) => !isDeepStrictEqual(before[name], after[name]));
  const part = (values: Values) => Object.fromEntries(names.map((name) => [name, values[name]]));
  return { before: part(before), after: part(after) };
}
