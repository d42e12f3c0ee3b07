import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { buildConnector } from 'undici';

/** An address that only this machine or its network can reach, and that webhooks are not for. */
export class PrivateAddress extends Error {
  override readonly name = 'PrivateAddress';
}

/** Whether everybody can reach it: not loopback, private, link-local, shared, reserved, nor one of these in IPv6 clothes. */
export function isPublic(address: string): boolean {
  return isIP(address) !== 0 && ipaddr.process(address).range() === 'unicast';
}

function refuse(host: string, address: string): PrivateAddress {
  const what = host === address ? address : `${host} (${address})`;
  return new PrivateAddress(`${what} is not a public address; WEBHOOK_ALLOW_PRIVATE=true allows it`);
}

type Found = (error: NodeJS.ErrnoException | null, address?: string | LookupAddress[], family?: number) => void;

/** Resolves a name to its public addresses only. What comes out is what is connected to: no second answer is asked for. */
export function publicLookup(resolve: typeof lookup = lookup) {
  return (host: string, options: LookupOptions, found: Found): void => {
    resolve(host, { ...options, all: true }, (error, addresses) => {
      if (error) return found(error);
      const allowed = addresses.filter(({ address }) => isPublic(address));
      if (!allowed[0]) return found(refuse(host, addresses[0]?.address ?? 'no address'));
      if (options.all) found(null, allowed);
      else found(null, allowed[0].address, allowed[0].family);
    });
  };
}

/** Opens sockets to public addresses only, whether they are named or given as numbers. */
export function publicConnector(resolve?: typeof lookup): buildConnector.connector {
  const connect = buildConnector({ timeout: 10_000, lookup: publicLookup(resolve) as never });
  return (options, callback) => {
    // Nobody looks up what is a number already.
    const literal = options.hostname.replace(/^\[|\]$/g, '');
    if (isIP(literal) && !isPublic(literal)) return callback(refuse(literal, literal), null);
    return connect(options, callback);
  };
}
