import { createHash, timingSafeEqual } from 'node:crypto';
import ipaddr from 'ipaddr.js';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import type { Operator } from '../../floor/roles.ts';

/** After this many wrong tokens from one address within the window (seconds), further ones get 429. */
const mostFailures = 10;
const windowSeconds = 60;

/** Anyone with ADMIN_TOKEN. */
const adminOfToken: Operator = {
  subject: 'ADMIN_TOKEN',
  name: 'ADMIN_TOKEN',
  role: 'admin',
  method: 'admin_token',
};

/** `wait`: seconds until this address may send another token. */
export type TokenVerdict<T> = T | 'wrong' | { wait: number };

export type TokenCheck = ReturnType<typeof createTokenCheck>;

/**
 * Finds the operator of a token, which is ADMIN_TOKEN or one that `find` knows, and limits wrong tokens by address. A right token
 * is always accepted: an operator may share the address (a proxy, a NAT) with an attacker.
 */
export function createTokenCheck(adminToken: string) {
  const failures = new RateLimiterMemory({ points: mostFailures, duration: windowSeconds });
  return async <T extends Operator>(
    given: string,
    address: string,
    find: (token: string) => Promise<T | undefined> = async () => undefined,
  ): Promise<TokenVerdict<T | Operator>> => {
    if (isSame(given, adminToken)) return adminOfToken;
    const found = await find(given);
    if (found) return found;
    const { consumedPoints, msBeforeNext } = await failures.penalty(hostOf(address));
    return consumedPoints > mostFailures ? { wait: Math.ceil(msBeforeNext / 1000) } : 'wrong';
  };
}

/** The addresses of one host: an IPv4 address, or the whole /64 of an IPv6 address (RFC 4291, section 2.5.1). */
export function hostOf(address: string): string {
  // A header of a proxy may have any content.
  if (!ipaddr.isValid(address)) return address;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === 'ipv4') return parsed.toString();
  return ipaddr.IPv6.networkAddressFromCIDR(`${parsed}/64`).toString();
}

/** Takes the same time for any input. */
function isSame(given: string, expected: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
