import type { ConnectOutcome } from '../oauth/return-url.ts';
import type { Finished } from '../operations/connections/finish-consent.ts';
import type { page } from './pages.ts';

/** An answer of the connect flow: a status, and a page that says what to do. */
export type ConnectPage = Parameters<typeof page>[0] & {
  status: number;
  /** The page has a button that starts again with the same link. */
  retry?: true;
  /** The outcome for the site that the user came from. Undefined: failed. */
  outcome?: ConnectOutcome;
};

export const linkEnded: ConnectPage = {
  status: 410,
  tone: 'bad',
  title: 'This link no longer works',
  paragraphs: ['Your account was disconnected after the link was made. Ask the person who sent it for a new one.'],
};

export const linkExpired: ConnectPage = {
  status: 410,
  tone: 'bad',
  title: 'This link has expired',
  paragraphs: ['A link works for 7 days. Ask the person who sent it for a new one.'],
};

export const linkInvalid: ConnectPage = {
  status: 400,
  tone: 'bad',
  title: 'This link does not work',
  paragraphs: ['It is incomplete, or was not made by this service. Copy the whole address, or ask for a new link.'],
};

export const strangeSignIn: ConnectPage = {
  status: 400,
  tone: 'bad',
  title: 'This sign-in did not start here',
  paragraphs: [
    'It was started in another browser, took more than an hour, or is finished already or at this moment.',
    'If you are not connected, open your link again, in the browser in which you want to sign in.',
  ],
};

export const denied: ConnectPage = {
  status: 200,
  tone: 'plain',
  retry: true,
  outcome: { status: 'refused' },
  title: 'Access was not allowed',
  paragraphs: [
    'You cancelled, so nothing has changed. An account that was connected before stays connected.',
    'If you want to allow access, try again.',
  ],
};

export const libraryProblem: ConnectPage = {
  status: 400,
  tone: 'plain',
  retry: true,
  title: 'The library reported a problem',
  paragraphs: ['Nothing was connected. Try again; if it keeps failing, tell the person who sent you the link.'],
};

/** `refused`: the library did not accept the code. */
export const failed = (refused: boolean): ConnectPage => ({
  status: refused ? 400 : 502,
  tone: 'bad',
  retry: true,
  title: 'Connecting did not work',
  paragraphs: [
    refused
      ? 'The library did not accept your sign-in. Perhaps it took too long.'
      : 'The library did not answer correctly, or this service has a problem.',
    'Nothing was connected. Try again; if it keeps failing, tell the person who sent you the link.',
  ],
});

/** The page for a browser that loads a finished sign-in again. */
export const again = (first: ConnectPage): ConnectPage => ({
  ...first,
  status: 400,
  tone: 'plain',
  leavesAtOnce: false,
  title: `This sign-in is finished: ${first.title[0]!.toLowerCase()}${first.title.slice(1)}`,
});

export function pageOf(outcome: Finished | { kind: 'later' }): ConnectPage {
  switch (outcome.kind) {
    case 'connected':
      return {
        status: 200,
        tone: 'good',
        outcome: { connection: outcome.id, status: 'connected' },
        title: outcome.created ? 'You are connected' : 'You are connected again',
        paragraphs: [
          outcome.paused
            ? `Copying ${named(outcome.companies)} is paused. It continues when the operator of this service resumes it.`
            : `Everything in ${named(outcome.companies)} is being copied from now on.`,
          'You can close this page.',
        ],
      };
    case 'later':
      return {
        status: 202,
        tone: 'good',
        outcome: { status: 'pending' },
        title: 'Your sign-in worked, and you will be connected soon',
        paragraphs: [
          'The library is busy. The connection is finished in the background as soon as it answers.',
          'You need not do anything else. You can close this page.',
        ],
      };
    case 'superseded':
      return {
        status: 200,
        tone: 'plain',
        title: 'A newer sign-in has replaced this one',
        paragraphs: ['Your account was connected or disconnected meanwhile, so this sign-in changed nothing.'],
      };
    case 'another user':
      return {
        status: 409,
        tone: 'bad',
        retry: true,
        title: 'That is another account',
        paragraphs: [
          `This link reconnects the account of ${outcome.expected}, and you signed in as ${outcome.actual}.`,
          'Sign out of the library, then try again with the right account.',
        ],
      };
    case 'link ended':
      return linkEnded;
  }
}

/** `Acme, Globex, and 3 others` */
function named(companies: string[]): string {
  if (companies.length === 0) return 'your library';
  const [first, rest] = [companies.slice(0, 5), companies.length - 5];
  return new Intl.ListFormat('en').format(rest > 0 ? [...first, `${rest} others`] : first);
}
