import { Rejected } from '../floor/errors.ts';
import { type AddressGuard, guardAddresses } from '../floor/public-address.ts';

/** Decides where the links that the library gives, and their redirects, may lead. */
export interface LinkGuard {
  /** @throws Rejected if links to this address must not be followed */
  check(url: URL): void;
  /** For net.connect. Not used with a proxy, which resolves names itself. */
  lookup: AddressGuard['lookup'];
}

/**
 * Links may lead to public addresses, to the library's own hosts, and to hosts in `allowPrivate` (DOWNLOAD_ALLOW_PRIVATE); if that is
 * `true`, to any host. If the API is https, http links are always refused.
 */
export function guardLinks(options: { apiUrl: string; appUrl: string; allowPrivate: true | string[] }): LinkGuard {
  const { apiUrl, appUrl, allowPrivate } = options;
  const secure = new URL(apiUrl).protocol === 'https:';
  const hosts = new Set([apiUrl, appUrl].map((url) => new URL(url).hostname.replace(/^\[|\]$/g, '')));
  if (allowPrivate !== true) for (const host of allowPrivate) hosts.add(host);
  const guard = guardAddresses({
    allows: (host) => allowPrivate === true || hosts.has(host),
    refusal: (where, host) => new Rejected({ code: 'link_not_public', host, where }),
  });
  return {
    check({ protocol, hostname }) {
      if (secure && protocol === 'http:') {
        throw new Rejected({ code: 'link_not_https', host: hostname });
      }
      guard.check(hostname);
    },
    lookup: guard.lookup,
  };
}
