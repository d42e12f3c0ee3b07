import { Rejected } from '../errors.ts';
import { type AddressGuard, guardAddresses } from '../public-address.ts';

/** Where the links that the library gives, and their redirects, may lead. */
export interface LinkGuard {
  /** @throws Rejected when nobody is to follow a link to there */
  check(url: URL): void;
  /** For net.connect. Behind a proxy the proxy resolves names, and this is not asked. */
  lookup: AddressGuard['lookup'];
}

/** Links lead to public addresses, to the library's own hosts, and to what DOWNLOAD_ALLOW_PRIVATE names; `true`: anywhere. */
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
