import { lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';

/** The only part of IPv6 that is allocated to the public internet. */
const globalIpv6 = ipaddr.IPv6.parseCIDR('2000::/3');

/** Whether an address is on the public internet: not loopback, private, link-local, shared or reserved, also as mapped IPv6. */
export function isPublic(address: string): boolean {
  if (isIP(address) === 0) return false;
  const parsed = ipaddr.process(address);
  if (parsed.range() !== 'unicast') return false;
  return parsed instanceof ipaddr.IPv4 || parsed.match(globalIpv6);
}

export interface AddressGuard {
  /** Call it before connecting, because an IP address as host is not looked up. @throws `refusal` if it is not public */
  check(host: string): void;
  /** For net.connect: resolves a name to its public addresses only, so that no second lookup can give others. */
  lookup: LookupFunction;
}

/**
 * Keeps requests to addresses that others chose away from this machine and its network.
 * @param options.allows hosts that may have any address
 * @param options.refusal the error about a host, `where` with its address
 */
export function guardAddresses(options: {
  allows: (host: string) => boolean;
  refusal: (where: string, host: string) => Error;
  resolve?: typeof lookup;
}): AddressGuard {
  const { allows, refusal, resolve = lookup } = options;
  const refuse = (host: string, address: string) => refusal(host === address ? host : `${host} (${address})`, host);
  return {
    check(host) {
      const literal = host.replace(/^\[|\]$/g, '');
      if (isIP(literal) && !isPublic(literal) && !allows(literal)) throw refuse(literal, literal);
    },
    lookup(host, options, found) {
      resolve(host, { ...options, all: true }, (error, addresses) => {
        if (error) return found(error, []);
        const allowed = allows(host) ? addresses : addresses.filter(({ address }) => isPublic(address));
        if (!allowed[0]) return found(refuse(host, addresses[0]?.address ?? 'no address'), []);
        if (options.all) found(null, allowed);
        else found(null, allowed[0].address, allowed[0].family);
      });
    },
  };
}
