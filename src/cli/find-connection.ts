import type { ApiClient } from './client.ts';
import { UsageError } from './failures.ts';
import { harmless } from './output.ts';

/**
 * The id of the connection that an operator means by an id, the beginning of an id, or the e-mail or name of its user.
 * @throws UsageError if none matches, or several
 */
export async function findConnection(api: ApiClient, given: string): Promise<string> {
  const { connections } = await api.connections({ q: given, limit: 250 });
  const same = (text: string) => text.toLowerCase() === given.toLowerCase();
  if (connections.some(({ id }) => id === given)) return given;
  const found = connections.filter(({ id, user }) => id.startsWith(given) || same(user.email) || same(user.name));
  if (found.length === 1) return found[0]!.id;
  const list = 'List them with `asset-mirror connections`.';
  if (found.length === 0) {
    throw new UsageError(`No connection has the id, e-mail or name ${harmless(given)}. ${list}`);
  }
  const ids = found.map(({ id, user }) => `${id} (${harmless(user.email || user.name)})`);
  throw new UsageError(`${harmless(given)} means several connections: ${ids.join(', ')}. Name one by its id.`);
}

/** `findConnection` for an option that may be absent. */
export const findOptional = async (api: ApiClient, given: string | undefined): Promise<string | undefined> =>
  given === undefined ? undefined : findConnection(api, given);
