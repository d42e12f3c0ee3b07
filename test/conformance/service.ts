import { setTimeout as wait } from 'node:timers/promises';
import { makeAccounts } from './accounts.ts';
import { type Admin, createAdmin } from './admin.ts';
import { createBrowser } from './browser.ts';
import { NotTried } from './check.ts';
import type { Person } from './consent.ts';
import { createSend } from './http.ts';

export type Options = {
  api: string;
  app: string;
  clientId?: string;
  clientSecret?: string;
  redirectUri: string;
  admin?: string;
  user?: string;
  password?: string;
  byHand?: boolean;
  /** How often, at most, the user is asked to consent by hand. */
  consents?: number;
  /** Waits in real time if the clock cannot be moved. */
  patient?: boolean;
  /** The path of the profile page under {app_url}. */
  profile: string;
  appName?: string;
  logoUrl?: string;
  /** How many assets are searched for one with certain properties. */
  scan: number;
};

export type Client = { clientId: string; clientSecret: string };

/** The longest wait in real time, in seconds. */
const PATIENCE = 2 * 3600;

export type Service = Awaited<ReturnType<typeof openService>>;

/** The service under test: its app, its user, and its clock. */
export async function openService(given: Options) {
  const { send, close: disconnect } = createSend();
  const admin = given.admin === undefined ? undefined : createAdmin(given.admin, send);
  const own = admin && (await makeAccounts(admin, given));
  const options = { ...given, ...own?.app };
  const person =
    own?.person(send) ??
    (options.user !== undefined && options.password !== undefined
      ? { email: options.user, password: options.password, browser: createBrowser(send) }
      : undefined);

  let ahead = 0;
  let moves = 0;
  const made: string[] = [];
  let observations: string[] = [];

  const service = {
    options,
    send,
    disconnect,
    admin,
    /** The user, the company and the projects that are made for a run with an admin API. */
    own: own && { userId: own.userId, companyId: own.companyId, companyName: own.companyName, otherId: own.otherId },
    person,
    /** Users and assets that were made for this run. */
    made,
    now: () => Date.now() + ahead,
    /** How often the time was passed. */
    moves: () => moves,

    /** Reports what the service does where the specification leaves a choice. */
    observe: (text: string) => observations.push(text),
    observed(): string[] {
      const all = observations;
      observations = [];
      return all;
    },

    client(): Client {
      const { clientId, clientSecret } = options;
      if (clientId === undefined) throw new NotTried('needs --client-id');
      if (clientSecret === undefined) throw new NotTried('needs --client-secret');
      return { clientId, clientSecret };
    },

    needAdmin(why = 'the public API cannot make this state; --admin can'): Admin {
      if (!admin) throw new NotTried(why);
      return admin;
    },

    needOwn() {
      service.needAdmin();
      return own!;
    },

    /** Moves the clock if there is an admin API, or else waits. */
    async passTime(seconds: number): Promise<void> {
      service.canPassTime(seconds);
      if (admin) {
        const { now } = await admin.advanceClock(Math.round(seconds));
        ahead = now - Date.now();
      } else await wait(seconds * 1000);
      moves++;
    },

    canPassTime(seconds: number): void {
      if (admin || (options.patient && seconds <= PATIENCE)) return;
      const waits = seconds <= PATIENCE ? '--patient waits, ' : '';
      throw new NotTried(`takes ${duration(seconds)}; ${waits}--admin moves the clock`);
    },

    needPages(): Person {
      if (options.byHand) throw new NotTried('by hand, nobody but you sees the pages');
      if (!person) throw new NotTried('needs --user and --password');
      return person;
    },
  };
  return service;
}

function duration(seconds: number): string {
  return seconds >= 86_400
    ? `${Math.round(seconds / 86_400)} days`
    : seconds >= 3600
      ? `${Math.round(seconds / 3600)} h`
      : `${Math.round(seconds / 60)} min`;
}
