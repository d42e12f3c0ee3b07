import { createHash, randomBytes } from 'node:crypto';
import type { Tags } from '../floor/tags.ts';
import { isSame, type Sealer } from './seal.ts';

/**
 * The first half of the authorization code flow (spec, sections 4.1 and 5; RFC 6749 section 4.1, RFC 7636, RFC 9700):
 * connect links, and the attempt that the browser carries until the callback.
 */

const linkPurpose = 'connect link';
const attemptPurpose = 'connect attempt';

/** Lets its holder connect an account, or reconnect `connectionId`, until it expires. */
export interface ConnectLink {
  connectionId?: string | undefined;
  /** Where the user goes afterwards. */
  returnUrl?: string | undefined;
  /** The tags that the connection gets. Undefined: it keeps those that it has. */
  tags?: Tags | undefined;
  /** By the database's clock: a connection that is ended later invalidates the link. */
  madeAt: Date;
  expiresAt: Date;
}

export function signConnectLink(sealer: Sealer, link: ConnectLink): string {
  return sealer.sign(
    linkPurpose,
    JSON.stringify({
      c: link.connectionId,
      r: link.returnUrl,
      t: link.tags,
      m: link.madeAt.getTime(),
      e: link.expiresAt.getTime(),
    }),
  );
}

const linkLifetimeMs = 7 * 86_400_000;

/** The address that a user opens to connect, or to reconnect one connection, and when it expires. */
export function connectUrl(
  sealer: Sealer,
  { publicUrl, madeAt, ...what }: Omit<ConnectLink, 'madeAt' | 'expiresAt'> & { publicUrl: string; madeAt: number },
): { url: string; expiresAt: string } {
  const expiresAt = new Date(madeAt + linkLifetimeMs);
  const link = signConnectLink(sealer, { ...what, madeAt: new Date(madeAt), expiresAt });
  return { url: `${publicUrl}/connect?link=${link}`, expiresAt: expiresAt.toISOString() };
}

/** The content of a connect link, also of an expired one. Undefined: we did not sign it. */
export function readConnectLink(sealer: Sealer, signed: string): ConnectLink | undefined {
  const payload = sealer.verify(linkPurpose, signed);
  if (payload === undefined) return undefined;
  const { c, r, t, m, e } = JSON.parse(payload) as { c?: string; r?: string; t?: Tags; m: number; e: number };
  return { connectionId: c, returnUrl: r, tags: t, madeAt: new Date(m), expiresAt: new Date(e) };
}

/** A connect attempt, which the browser keeps in a sealed cookie until the callback. */
export interface Attempt {
  state: string;
  verifier: string;
  /** The link that started it. */
  link: string;
  expiresAt: number;
}

const attemptLifetime = 60 * 60_000;

/** A new attempt, and the address of the library's consent page for it. */
export function beginAttempt(options: { appUrl: string; clientId: string; redirectUri: string; link: string }): {
  attempt: Attempt;
  url: string;
} {
  const attempt: Attempt = {
    state: randomBytes(24).toString('base64url'),
    verifier: randomBytes(48).toString('base64url'),
    link: options.link,
    expiresAt: Date.now() + attemptLifetime,
  };
  const url = new URL(`${options.appUrl.replace(/\/+$/, '')}/oauth/authorize`);
  url.search = new URLSearchParams({
    response_type: 'code',
    client_id: options.clientId,
    redirect_uri: options.redirectUri,
    state: attempt.state,
    code_challenge: createHash('sha256').update(attempt.verifier).digest('base64url'),
    code_challenge_method: 'S256',
  }).toString();
  return { attempt, url: url.href };
}

/** The attempt as the value of a cookie: only the browser that started it can finish it. */
export function sealAttempt(sealer: Sealer, attempt: Attempt): string {
  return sealer.seal(attemptPurpose, JSON.stringify(attempt));
}

/** The attempt that this browser started with this state; undefined otherwise. */
export function openAttempt(sealer: Sealer, cookie: string, state: string): Attempt | undefined {
  let attempt: Attempt;
  try {
    attempt = JSON.parse(sealer.open(attemptPurpose, cookie));
  } catch {
    return undefined;
  }
  return isSame(state, attempt.state) && attempt.expiresAt > Date.now() ? attempt : undefined;
}
