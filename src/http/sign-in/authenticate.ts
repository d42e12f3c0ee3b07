import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Operator } from '../../floor/roles.ts';
import { hashOf } from '../../operations/operators/api-tokens.ts';
import { Refused } from '../../operations/refused.ts';
import type { ApiToken, Session } from '../../store/database/schema.ts';
import type { Store } from '../../store/store.ts';
import type { Sessions } from './sessions.ts';
import type { TokenCheck } from './token-check.ts';

/** The operator who sends a request, and the credential: ADMIN_TOKEN, an API token, or a session. */
export interface Authenticated extends Operator {
  sessionId?: string;
  tokenId?: string;
  /** A browser sends the cookie by itself, so another site may have caused the request. */
  byCookie?: boolean;
}

declare module 'fastify' {
  interface FastifyRequest {
    operator?: Authenticated;
  }
}

export type Authentication = ReturnType<typeof createAuthentication>;

const ofSession = ({ id, subject, name, role, method }: Session): Authenticated => ({
  subject,
  name,
  role,
  method,
  sessionId: id,
});
const ofToken = ({ id, name, role }: ApiToken): Authenticated => ({
  subject: `token:${id}`,
  name,
  role,
  method: 'api_token',
  tokenId: id,
});

/** Finds out who sends a request: by a bearer token (RFC 6750), otherwise by the session of the browser. */
export function createAuthentication(deps: { store: Store; sessions: Sessions; checkToken: TokenCheck }) {
  const { store, sessions, checkToken } = deps;

  async function findByToken(token: string): Promise<Authenticated | undefined> {
    if (!token.startsWith('am_')) return undefined;
    const apiToken = await store.apiTokens.use(hashOf(token));
    if (apiToken) return ofToken(apiToken);
    const session = await sessions.ofTerminal(token);
    return session && ofSession(session);
  }

  return {
    /**
     * Undefined: nobody, because token or session is missing, wrong, or has ended.
     * @throws Refused 429 after too many wrong tokens from its address
     */
    async operatorOf(request: FastifyRequest, reply: FastifyReply): Promise<Authenticated | undefined> {
      // A proxy with a password of its own sends another scheme, such as Basic.
      const [, scheme, given = ''] = /^(Bearer)(?: +(.*))?$/i.exec(request.headers.authorization ?? '') ?? [];
      if (scheme === undefined) {
        const session = await sessions.of(request);
        return session && { ...ofSession(session), byCookie: true };
      }
      const verdict = await checkToken(given.trim(), request.ip, findByToken);
      if (verdict === 'wrong') return undefined;
      if (!('wait' in verdict)) return verdict;
      reply.header('retry-after', verdict.wait);
      throw new Refused(
        429,
        'too_many_wrong_tokens',
        `Too many wrong tokens from this address. Try again in ${verdict.wait} seconds, with a valid token.`,
      );
    },

    /** Whether the token or session of an operator is still valid, for what takes longer than a request. */
    async isStillValid({ sessionId, tokenId }: Authenticated): Promise<boolean> {
      if (sessionId !== undefined) return sessions.isLive(sessionId);
      return tokenId === undefined || store.apiTokens.isValid(tokenId);
    },
  };
}
