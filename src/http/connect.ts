import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Repeated } from '../floor/every.ts';
import { type Attempt, beginAttempt, type ConnectLink, readConnectLink, sealAttempt } from '../oauth/authorize.ts';
import { OAuthError } from '../oauth/client.ts';
import { allowedReturnUrl, withOutcome } from '../oauth/return-url.ts';
import { openConnectLink } from '../operations/connections/connect-links.ts';
import { acceptConsent, finishConsents, useAttempt } from '../operations/connections/consents.ts';
import type { ConsentDeps } from '../operations/connections/finish-consent.ts';
import * as pages from './connect-pages.ts';
import { page, pageHeaders } from './pages.ts';
import { cookieAt } from './public-url.ts';
import { openJson, sealJson } from './sealed-json.ts';

export interface ConnectDeps extends ConsentDeps {
  publicUrl: string;
  appUrl: string;
  clientId: string;
  returnOrigins: readonly string[];
}

// A wrong parameter gets a page that says what to do, not a problem for programs.
const optionalText = z.string().optional().catch(undefined);
const connectQuery = z.looseObject({ link: optionalText });
const callbackQuery = z.looseObject({ state: optionalText, code: optionalText, error: optionalText });

const descriptions = {
  200: 'Connected, or cancelled by the user.',
  202: 'Accepted; it is finished in the background.',
  302: 'Redirects to the library, with PKCE (S256) and a state.',
  400: 'The link, the sign-in or the consent is not valid; the page says what to do.',
  409: 'Another user than expected has signed in.',
  410: 'The link has expired, or no longer works because its account was disconnected.',
  '5xx': 'asset-mirror or the library cannot do it now.',
} as const;
const pageSchema = (
  operationId: string,
  summary: string,
  querystring: z.ZodType,
  statuses: (keyof typeof descriptions)[],
) => ({
  tags: ['connections'],
  operationId,
  summary,
  querystring,
  security: [],
  response: Object.fromEntries(
    statuses.map((status) => [
      status,
      { description: descriptions[status], content: { 'text/html': { schema: z.string() } } },
    ]),
  ),
});
const schemas = {
  connect: pageSchema('connect', "Open a connect link: redirects to the library's consent page", connectQuery, [
    302,
    400,
    410,
    '5xx',
  ]),
  callback: pageSchema('finishConnect', 'Receive the user after consent, and show a page', callbackQuery, [
    200,
    202,
    400,
    409,
    410,
    '5xx',
  ]),
};

const cookieName = 'asset_mirror_connect';
/** Keeps the page of a finished connect, for a browser that loads it again. */
const doneCookieName = 'asset_mirror_connected';
const donePurpose = 'connected page';
const done = z.object({ state: z.string(), content: z.custom<pages.ConnectPage>() });

/**
 * The connect flow (spec, section 5): a signed link → the consent page with PKCE and state → back with a code → tokens and
 * `/me` → a connection. State and verifier travel in a sealed cookie, so only the browser that began can finish.
 */
export function connectRoutes(app: FastifyInstance, deps: ConnectDeps): void {
  let finishing: Repeated | undefined;
  app.addHook('onReady', async () => {
    finishing = finishConsents(deps);
  });
  app.addHook('onClose', () => finishing?.stop());
  const cookie = cookieAt(deps.publicUrl, '/oauth/callback');

  app.get('/connect', { schema: schemas.connect }, async (request, reply) => {
    const { link } = request.query as z.infer<typeof connectQuery>;
    const begun = await begin(deps, link);
    if ('status' in begun) return show(reply, begun);
    return reply
      .setCookie(cookieName, sealAttempt(deps.sealer, begun.attempt), { ...cookie, maxAge: 3600 })
      .header('referrer-policy', 'no-referrer')
      .header('cache-control', 'no-store')
      .redirect(begun.url, 302);
  });

  app.get('/oauth/callback', { schema: schemas.callback }, async (request, reply) => {
    const query = request.query as z.infer<typeof callbackQuery>;
    const shown = shownBefore(deps, request, query.state);
    if (shown) return show(reply, pages.again(shown));
    const sealed = request.cookies[cookieName];
    const attempt =
      sealed === undefined || query.state === undefined ? undefined : await useAttempt(deps, sealed, query.state);
    const link = attempt && readConnectLink(deps.sealer, attempt.link);
    if (!link) return show(reply, pages.strangeSignIn);
    reply.clearCookie(cookieName, cookie);
    const content = withReturn(deps, link, await finish(deps, attempt, link, query));
    if (content.retry) {
      return show(reply, { ...content, action: { href: linkTo(deps, attempt.link), label: 'Try again' } });
    }
    if (content.status < 300) {
      const kept = sealJson(deps.sealer, donePurpose, { state: attempt.state, content });
      reply.setCookie(doneCookieName, kept, { ...cookie, maxAge: 600 });
    }
    return show(reply, content);
  });
}

const redirectUriOf = ({ publicUrl }: ConnectDeps) => `${publicUrl}/oauth/callback`;
const linkTo = ({ publicUrl }: ConnectDeps, link: string) => `${publicUrl}/connect?link=${link}`;

const show = (reply: FastifyReply, content: pages.ConnectPage) =>
  reply.code(content.status).headers(pageHeaders).send(page(content));

/** A new attempt with the address of its consent page; or the page that says why the link does not work. */
async function begin(deps: ConnectDeps, signed: string | undefined) {
  const opened = signed === undefined ? undefined : await openConnectLink(deps, signed);
  if (!opened) return pages.linkInvalid;
  const { link, refused } = opened;
  if (refused) return withReturn(deps, link, refused === 'expired' ? pages.linkExpired : pages.linkEnded);
  return beginAttempt({
    appUrl: deps.appUrl,
    clientId: deps.clientId,
    redirectUri: redirectUriOf(deps),
    link: signed!,
  });
}

/** Adds a way back to the site that the link names, if CONNECT_RETURN_ORIGINS still allows that site. */
function withReturn(
  { returnOrigins }: ConnectDeps,
  { returnUrl }: ConnectLink,
  content: pages.ConnectPage,
): pages.ConnectPage {
  const allowed = returnUrl === undefined ? undefined : allowedReturnUrl(returnUrl, returnOrigins);
  if (allowed === undefined) return content;
  const { outcome = { status: 'failed' } } = content;
  const back = { href: withOutcome(allowed, outcome), label: `Back to ${new URL(allowed).host}` };
  return { ...content, back, leavesAtOnce: outcome.status === 'connected' };
}

async function finish(
  deps: ConnectDeps,
  attempt: Attempt,
  { connectionId, tags, madeAt }: ConnectLink,
  { code, error }: z.infer<typeof callbackQuery>,
): Promise<pages.ConnectPage> {
  if (error === 'access_denied') return pages.denied;
  if (error !== undefined || code === undefined) {
    deps.log.warn({ event: 'consent.refused', reason: (error ?? 'no code').slice(0, 100) }, 'consent refused');
    return pages.libraryProblem;
  }
  try {
    const outcome = await acceptConsent(deps, {
      code,
      verifier: attempt.verifier,
      redirectUri: redirectUriOf(deps),
      connectionId,
      tags,
      linkMadeAt: madeAt,
    });
    return pages.pageOf(outcome);
  } catch (err) {
    deps.log.error({ event: 'consent.failed', err }, 'consent failed');
    return pages.failed(err instanceof OAuthError && err.invalidGrant);
  }
}

/** The page that this browser got for this state, if any. */
function shownBefore({ sealer }: ConnectDeps, request: FastifyRequest, state: string | undefined) {
  const found = openJson(sealer, donePurpose, done, request.cookies[doneCookieName]);
  return found?.state === state ? found?.content : undefined;
}
