import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { beginAttempt, openAttempt, readConnectLink, sealAttempt } from '../oauth/authorize.ts';
import { OAuthError } from '../oauth/client.ts';
import type { Sealer } from '../oauth/seal.ts';
import { type ConsentDeps, createConsents, type Finished } from '../operations/consents.ts';
import { page, pageHeaders } from './pages.ts';

export interface ConnectDeps extends ConsentDeps {
  publicUrl: string;
  appUrl: string;
  clientId: string;
}

/** Whoever comes with something else gets a page that says what to do, not an error for programs. */
const word = z.string().optional().catch(undefined);
const connectQuery = z.looseObject({ link: word });
const callbackQuery = z.looseObject({ state: word, code: word, error: word });

const aPage = (status: string, description: string) => ({
  [status]: { description, content: { 'text/html': { schema: z.string() } } },
});
const inABrowser = (operationId: string, summary: string, querystring: z.ZodType) => ({
  tags: ['connections'],
  operationId,
  summary,
  querystring,
  security: [],
  response: {
    ...aPage('302', 'On to the service, with PKCE (S256) and a state.'),
    ...aPage('2xx', 'What came of it.'),
    ...aPage('4xx', 'Why not, and what to do.'),
    ...aPage('5xx', 'It cannot be done at present.'),
  },
});
const schemas = {
  connect: inABrowser('connect', 'Where a connect link leads: on to the consent page of the service', connectQuery),
  callback: inABrowser('finishConnect', 'Where the service sends the browser back: a page for people', callbackQuery),
};

const cookieName = 'asset_mirror_connect';
/** Holds the page of a connect that worked, for who loads it again. */
const doneCookieName = 'asset_mirror_connected';
const donePurpose = 'connected page';

/**
 * The connect flow (spec, section 5): a signed link → the consent page with PKCE and state → back with a code → tokens and
 * `/me` → a connection. State and verifier travel in a sealed cookie, so only the browser that began can finish.
 */
export function connectRoutes(app: FastifyInstance, deps: ConnectDeps): void {
  const consents = createConsents(deps);
  app.addHook('onReady', async () => consents.start());
  app.addHook('onClose', async () => consents.stop());
  const redirectUri = `${deps.publicUrl}/oauth/callback`;
  const cookiePath = `${new URL(deps.publicUrl).pathname.replace(/\/$/, '')}/oauth/callback`;
  const cookie = {
    path: cookiePath,
    httpOnly: true,
    // The service sends the browser back by a top-level GET, which Lax lets through.
    sameSite: 'lax' as const,
    secure: deps.publicUrl.startsWith('https:'),
  };
  const show = (reply: FastifyReply, status: number, content: Page) =>
    reply.code(status).headers(pageHeaders).send(page(content));
  const tryAgain = (link: string) => ({ href: `${deps.publicUrl}/connect?link=${link}`, label: 'Try again' });
  const linkEnded = (reply: FastifyReply) =>
    show(reply, 410, {
      tone: 'bad',
      title: 'This link has ended',
      paragraphs: ['Your account was disconnected after the link was made. Ask whoever sent it to you for a new one.'],
    });

  app.get('/connect', { schema: schemas.connect }, async (request, reply) => {
    const { link } = request.query as z.infer<typeof connectQuery>;
    const read = link !== undefined ? readConnectLink(deps.sealer, link) : 'invalid';
    if (read === 'invalid' || read === 'expired') {
      return show(reply, read === 'expired' ? 410 : 400, {
        tone: 'bad',
        title: read === 'expired' ? 'This link has expired' : 'This link does not work',
        paragraphs: [
          read === 'expired'
            ? 'Connect links are valid for some days only. Ask whoever sent it to you for a new one.'
            : 'It is incomplete, or was not made by this service. Copy the whole address, or ask for a new link.',
        ],
      });
    }
    const connection =
      read.connectionId === undefined ? undefined : await deps.store.connections.get(read.connectionId);
    if (connection?.linksSince && connection.linksSince > read.madeAt) return linkEnded(reply);
    const { attempt, url } = beginAttempt({
      appUrl: deps.appUrl,
      clientId: deps.clientId,
      redirectUri,
      connectionId: read.connectionId,
      link: link!,
      linkMadeAt: read.madeAt.getTime(),
    });
    return reply
      .setCookie(cookieName, sealAttempt(deps.sealer, attempt), { ...cookie, maxAge: 3600 })
      .header('referrer-policy', 'no-referrer')
      .header('cache-control', 'no-store')
      .redirect(url, 302);
  });

  app.get('/oauth/callback', { schema: schemas.callback }, async (request, reply) => {
    const query = request.query as z.infer<typeof callbackQuery>;
    const sealed = request.cookies[cookieName];
    const attempt =
      sealed !== undefined && typeof query.state === 'string'
        ? openAttempt(deps.sealer, sealed, query.state)
        : undefined;
    const done = pageOf(deps.sealer, request.cookies[doneCookieName], query.state);
    if (done) {
      const title = `This sign-in is finished: ${done.title[0]!.toLowerCase()}${done.title.slice(1)}`;
      return show(reply, 400, { ...done, tone: 'plain', title });
    }
    if (!attempt || !(await deps.store.connections.useState(attempt.state, new Date(attempt.expiresAt)))) {
      return show(reply, 400, {
        tone: 'bad',
        title: 'This sign-in did not start here',
        paragraphs: [
          'It was begun in another browser, has been finished already, or took more than an hour. Nothing was connected.',
          'Open the link that you were sent once more, in the browser in which you want to sign in.',
        ],
      });
    }
    reply.clearCookie(cookieName, cookie);
    const { connectionId } = attempt;

    if (typeof query.error === 'string' || typeof query.code !== 'string') {
      const denied = query.error === 'access_denied';
      if (!denied) deps.log.warn({ reason: String(query.error ?? 'no code').slice(0, 100) }, 'consent failed');
      return show(reply, denied ? 200 : 400, {
        tone: 'plain',
        title: denied ? 'Access was not allowed' : 'The library service reported a problem',
        paragraphs: denied
          ? [
              'You cancelled, so nothing was connected and nothing is copied.',
              'If that was not what you wanted, try again.',
            ]
          : ['Nothing was connected. Trying again often helps; if it does not, tell whoever runs this service.'],
        action: tryAgain(attempt.link),
      });
    }

    try {
      const outcome = await consents.accept({
        code: query.code,
        verifier: attempt.verifier,
        redirectUri,
        connectionId,
        linkMadeAt: new Date(attempt.linkMadeAt),
      });
      if (outcome.kind === 'link ended') return linkEnded(reply);
      if (outcome.kind === 'another user') {
        return show(reply, 409, {
          tone: 'bad',
          title: 'That is another account',
          paragraphs: [
            `This link reconnects the account of ${outcome.expected}, and you signed in as ${outcome.actual}.`,
            'Sign out of the library service, then try again with the right account.',
          ],
          action: tryAgain(attempt.link),
        });
      }
      const content = pageFor(outcome);
      const kept = deps.sealer.seal(donePurpose, JSON.stringify({ state: attempt.state, content }));
      reply.setCookie(doneCookieName, kept, { ...cookie, maxAge: 600 });
      return show(reply, outcome.kind === 'later' ? 202 : 200, content);
    } catch (err) {
      const refused = err instanceof OAuthError && err.status < 500;
      deps.log.error({ err }, 'connecting failed');
      return show(reply, refused ? 400 : 502, {
        tone: 'bad',
        title: 'Connecting did not work',
        paragraphs: [
          refused
            ? 'The library service did not accept the sign-in. It may have taken too long.'
            : 'The library service could not be asked, or gave an answer that makes no sense.',
          'Nothing was connected. Try again; if it keeps failing, tell whoever runs this service.',
        ],
        action: tryAgain(attempt.link),
      });
    }
  });
}

type Page = Parameters<typeof page>[0];

function pageFor(outcome: Exclude<Finished, { kind: 'another user' | 'link ended' }> | { kind: 'later' }): Page {
  switch (outcome.kind) {
    case 'connected':
      return {
        tone: 'good',
        title: outcome.created ? 'You are connected' : 'You are connected again',
        paragraphs: [
          `Everything in ${named(outcome.companies)} is being copied from now on.`,
          'You can close this page.',
        ],
      };
    case 'later':
      return {
        tone: 'good',
        title: 'Your sign-in worked, and you will be connected soon',
        paragraphs: [
          'The library service is busy. The connection is finished in the background as soon as it answers.',
          'There is nothing left for you to do. You can close this page.',
        ],
      };
    case 'superseded':
      return {
        tone: 'plain',
        title: 'A newer sign-in has replaced this one',
        paragraphs: [
          'Your account was connected or disconnected in the meantime, so this sign-in has changed nothing.',
        ],
      };
  }
}

/** The page that this browser has been shown for this state, if it has. */
function pageOf(sealer: Sealer, cookie: string | undefined, state: unknown): Page | undefined {
  try {
    const done = JSON.parse(sealer.open(donePurpose, cookie!)) as { state: string; content: Page };
    return done.state === state ? done.content : undefined;
  } catch {
    return undefined;
  }
}

/** `Acme, Globex, and 3 others` */
function named(companies: string[]): string {
  if (companies.length === 0) return 'your library';
  const [first, rest] = [companies.slice(0, 5), companies.length - 5];
  return new Intl.ListFormat('en').format(rest > 0 ? [...first, `${rest} others`] : first);
}
