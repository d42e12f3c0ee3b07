import type { Tags } from '../../tags.ts';
import type { ApiClient } from '../client.ts';
import { findOptional } from '../find-connection.ts';
import { print, printJson } from '../output.ts';

/** Prints a signed link with which a user connects, or reconnects one connection. */
export async function connectLink(
  api: ApiClient,
  options: { connection?: string; returnUrl?: string; tag?: Tags; json?: boolean },
): Promise<void> {
  const connectionId = await findOptional(api, options.connection);
  const link = await api.createConnectLink({ connectionId, returnUrl: options.returnUrl, tags: options.tag });
  if (options.json) return printJson(link);
  print(link.url);
  if (process.stdout.isTTY)
    print(`\nSend it to the user; it works until ${new Date(link.expiresAt).toLocaleString()}.`);
}
