import type { FastifyRequest } from 'fastify';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { Refused } from '../../operations/refused.ts';
import { hostOf } from './token-check.ts';

/** Requests of one address in a minute. People of one company share an address, and a terminal asks every five seconds. */
const perMinute = 100;

export type SignInLimit = ReturnType<typeof createSignInLimit>;

/**
 * Limits the requests to the sign-in at the provider by address. Anyone may send them, and each costs requests to the provider
 * and an entry in the audit log.
 */
export function createSignInLimit() {
  const limiter = new RateLimiterMemory({ points: perMinute, duration: 60 });
  return async ({ ip }: FastifyRequest): Promise<void> => {
    const { consumedPoints } = await limiter.penalty(hostOf(ip));
    if (consumedPoints <= perMinute) return;
    throw new Refused(429, 'too_many_sign_ins', 'Too many sign-ins from this address. Try again in a minute.');
  };
}
