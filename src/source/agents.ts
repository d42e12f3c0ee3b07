import { createAgent, type Proxies } from './http.ts';
import { guardLinks } from './link-guard.ts';

/** A transfer, its details and its thumbnail need a connection each; syncs need some, too. */
export const connectionsFor = (transfers: number): number => transfers * 6 + 20;

/** Opens the connections to the library: `api` for its API and token endpoint, `links` for its signed links, which `guard` checks. */
export function createLibraryAgents(options: {
  apiUrl: string;
  appUrl: string;
  allowPrivate: true | string[];
  proxies: Proxies | undefined;
  /** The maximum to each host. */
  connections: number;
}) {
  const { proxies, connections } = options;
  const guard = guardLinks(options);
  const api = createAgent({ connections, proxies });
  const links = createAgent({ connections, proxies, lookup: guard.lookup });
  return {
    guard,
    api,
    links,
    async destroy(): Promise<void> {
      await Promise.all([api.destroy(), links.destroy()]);
    },
  };
}
