import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import type { z } from 'zod';
import { type Admin, createAdmin, type NewAsset } from './admin.ts';
import { createBrowser } from './browser.ts';
import { Failure, NotTried, shaped } from './check.ts';
import { type Decision, type Person, type Walk, walk, walkByHand } from './consent.ts';
import { type Answer, createSend, describeAnswer, type Send } from './http.ts';
import {
  type Asset,
  type Company,
  Detail,
  type DetailedAsset,
  Me,
  Page,
  TokenResponse,
  type Tokens,
} from './shapes.ts';

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
export type Code = { code: string; verifier: string; redirectUri: string; landed: URL };
export type Grant = Tokens & { client: Client };

type Asking = {
  query?: Record<string, string | undefined>;
  redirectUri?: string;
  client?: Client;
  person?: Person;
  verifier?: string;
} & Partial<Decision>;

const BY_HAND_TIMEOUT = 10 * 60_000;
const CANDIDATES = 60;
/** The longest wait in real time, in seconds. */
const PATIENCE = 2 * 3600;

export type World = Awaited<ReturnType<typeof openWorld>>;

/** The service under test, and what a check can do with it. */
export async function openWorld(given: Options) {
  const { send, close: disconnect } = createSend();
  const admin = given.admin === undefined ? undefined : createAdmin(given.admin, send);
  const own = admin && (await settle(admin, given));
  const options = { ...given, ...own?.app };
  const { api, app } = options;
  const person =
    own?.person(send) ??
    (options.user !== undefined && options.password !== undefined
      ? { email: options.user, password: options.password, browser: createBrowser(send) }
      : undefined);

  let ahead = 0;
  let consents = 0;
  let kept: { grant: Grant; since: number; moves: number } | undefined;
  let moves = 0;
  let listing: Promise<Asset[]> | undefined;
  const granted = new Map<string, Client>();
  const made: string[] = [];
  let observations: string[] = [];

  async function newest(): Promise<Asset[]> {
    const found: Asset[] = [];
    for (const { id } of (await world.companies()).slice(0, 10)) found.push(...(await world.list(id)));
    return found;
  }

  const world = {
    options,
    send,
    admin,
    /** The user, the company and the projects that are made for a run with an admin API. */
    own: own && { userId: own.userId, companyId: own.companyId, companyName: own.companyName, otherId: own.otherId },
    person,
    now: () => Date.now() + ahead,

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
      world.needAdmin();
      return own!;
    },

    /** Moves the clock if there is an admin API, or else waits. */
    async passTime(seconds: number): Promise<void> {
      world.canPassTime(seconds);
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

    authorizeUrl(asking: Asking & { challenge: string; state: string }): string {
      const { query = {}, redirectUri = options.redirectUri, client, challenge, state } = asking;
      const parameters = {
        response_type: 'code',
        client_id: client?.clientId ?? world.client().clientId,
        redirect_uri: redirectUri,
        state,
        code_challenge: challenge,
        code_challenge_method: 'S256',
        // Names the user for services that consent automatically.
        login_hint: own && (asking.person ?? person)?.email,
        ...query,
      };
      const given = Object.entries(parameters).filter((pair): pair is [string, string] => pair[1] !== undefined);
      return `${app}/oauth/authorize?${new URLSearchParams(given)}`;
    },

    /** Follows the authorize endpoint to the app or to a page. */
    async authorize(asking: Asking = {}): Promise<Walk & { verifier: string; state: string }> {
      const state = asking.query?.state ?? randomBytes(16).toString('base64url');
      const verifier = asking.verifier ?? randomBytes(32).toString('base64url');
      const url = world.authorizeUrl({ ...asking, challenge: challengeOf(verifier), state });
      const redirectUri = asking.query?.redirect_uri ?? asking.redirectUri ?? options.redirectUri;
      const { decision = 'allow', companies } = asking;
      const wanted: Decision = { decision, ...(companies && { companies }) };
      if (options.byHand) {
        if (++consents > (options.consents ?? Infinity))
          throw new NotTried('takes more consents than --consents allows');
        const does = decision === 'allow' ? `allow access${companies ? ` to ${companies} only` : ''}` : 'cancel';
        const landed = await walkByHand(url, redirectUri, does, BY_HAND_TIMEOUT);
        return { landed, pages: [], verifier, state };
      }
      const who = asking.person ?? person ?? { email: '', password: '', browser: createBrowser(send) };
      const walked = await walk(url, redirectUri, who, wanted);
      return { ...walked, verifier, state };
    },

    /** The pages of the flow. With --by-hand, only the user sees them. */
    async pagesOf(asking: Asking = {}): Promise<Walk['pages']> {
      world.needPages();
      const { pages } = await world.authorize({ decision: 'cancel', ...asking });
      if (pages.length === 0) throw new NotTried('this service consents automatically and shows no page');
      return pages;
    },

    needPages(): Person {
      if (options.byHand) throw new NotTried('by hand, nobody but you sees the pages');
      if (!person) throw new NotTried('needs --user and --password');
      return person;
    },

    async newCode(asking: Asking = {}): Promise<Code> {
      if (!options.byHand && !asking.person && !person) {
        throw new NotTried('needs a consent: --user and --password, or --by-hand');
      }
      const { landed, page, verifier } = await world.authorize(asking);
      if (page && page.status < 400 && !person) throw new NotTried('needs --user and --password');
      const code = landed?.searchParams.get('code');
      if (!code) {
        const found = landed ? `${landed.search}` : `a page (${page!.status}): ${page!.text.slice(0, 200)}`;
        throw new Failure('a redirect to the redirect URI with a code', found);
      }
      return { code, verifier, redirectUri: asking.redirectUri ?? options.redirectUri, landed: landed! };
    },

    /** A request to the token endpoint, by default as a form with HTTP Basic. */
    async token(fields: Record<string, string>, how: { client?: Client; json?: boolean; inBody?: boolean } = {}) {
      const { clientId, clientSecret } = how.client ?? world.client();
      const all = how.inBody ? { ...fields, client_id: clientId, client_secret: clientSecret } : fields;
      const answer = await send(`${api}/api/oauth/token`, {
        method: 'POST',
        headers: {
          ...(how.json && { 'content-type': 'application/json' }),
          ...(!how.inBody && { authorization: basic({ clientId, clientSecret }) }),
        },
        body: how.json ? JSON.stringify(all) : new URLSearchParams(all),
      });
      const token = (answer.json as { refresh_token?: unknown } | undefined)?.refresh_token;
      if (typeof token === 'string') granted.set(token, { clientId, clientSecret });
      return answer;
    },

    exchange: (
      { code, verifier, redirectUri }: Omit<Code, 'landed'>,
      how: { client?: Client; json?: boolean; inBody?: boolean } = {},
    ) =>
      world.token({ grant_type: 'authorization_code', code, redirect_uri: redirectUri, code_verifier: verifier }, how),

    refresh: (token: string, how: { client?: Client; json?: boolean; inBody?: boolean } = {}) =>
      world.token({ grant_type: 'refresh_token', refresh_token: token }, how),

    revoke(token: string, client: Client = world.client(), inBody = false): Promise<Answer> {
      const { clientId, clientSecret } = client;
      return send(`${api}/api/oauth/revoke`, {
        method: 'POST',
        headers: inBody ? {} : { authorization: basic(client) },
        body: new URLSearchParams({ token, ...(inBody && { client_id: clientId, client_secret: clientSecret }) }),
      });
    },

    /** A separate connection, for a check that ends it. */
    async grant(asking: Asking = {}): Promise<Grant> {
      const client = asking.client ?? world.client();
      const answer = await world.exchange(await world.newCode(asking), { client });
      if (answer.status !== 200) throw new Failure('tokens for a code', describeAnswer(answer));
      return { ...shaped('the token response', TokenResponse, answer.json), client };
    },

    /** The connection that all reading checks share. It is refreshed before it expires. */
    async session(): Promise<Grant> {
      const isStale = kept && (kept.moves !== moves || Date.now() - kept.since > 50 * 60_000);
      if (kept && isStale) {
        const answer = await world.refresh(kept.grant.refresh_token);
        const tokens = TokenResponse.safeParse(answer.json);
        kept = tokens.success
          ? { grant: { ...tokens.data, client: kept.grant.client }, since: Date.now(), moves }
          : undefined;
      }
      kept ??= { grant: await world.grant(), since: Date.now(), moves };
      return kept.grant;
    },

    /** Called by a check that has ended the shared connection. */
    forget(): void {
      kept = undefined;
      listing = undefined;
    },

    /** GET of the API, by default with the shared connection. */
    async get(path: string, token?: string): Promise<Answer> {
      const bearer = token ?? (await world.session()).access_token;
      return send(`${api}/api/v1${path}`, { headers: { authorization: `Bearer ${bearer}` } });
    },

    async read<T extends z.ZodType>(path: string, shape: T): Promise<z.output<T>> {
      const answer = await world.get(path);
      if (answer.status !== 200)
        throw new Failure(`GET /api/v1${path.split('?')[0]} with status 200`, describeAnswer(answer));
      return shaped(answer.request, shape, answer.json);
    },

    async companies(): Promise<Company[]> {
      const { companies } = await world.read('/me', Me);
      if (companies.length === 0) throw new NotTried('this user can read no company');
      return companies;
    },

    page: (companyId: string, query: Record<string, string | number> = {}): Promise<Page> =>
      world.read(`/companies/${segment(companyId)}/assets?${queryOf(query)}`, Page),

    /** A list, page by page, up to `most` assets. */
    async list(companyId: string, query: Record<string, string | number> = {}, most = options.scan): Promise<Asset[]> {
      const assets: Asset[] = [];
      const cursors = new Set<string>();
      let cursor: string | null | undefined;
      do {
        const page = await world.page(companyId, { limit: 100, ...query, ...(cursor && { cursor }) });
        assets.push(...page.assets);
        cursor = page.nextCursor;
        if (cursor && cursors.has(cursor)) throw new Failure('a list that ends', `cursor ${cursor} a second time`);
        if (cursor) cursors.add(cursor);
      } while (cursor && assets.length < most);
      return assets;
    },

    /** The company whose list is read. It has more than a hundred assets, if there is one. */
    async listed(): Promise<Company> {
      if (own) {
        await own.fill(made);
        return { id: own.companyId, name: own.companyName };
      }
      const companies = await world.companies();
      let largest = { company: companies[0]!, count: -1 };
      for (const company of companies.slice(0, 10)) {
        const { length } = await world.list(company.id, {}, 101);
        if (length > largest.count) largest = { company, count: length };
        if (length > 100) break;
      }
      if (largest.count < 1) throw new NotTried('no company of this user has assets');
      return largest.company;
    },

    detail: async (id: string): Promise<DetailedAsset> => (await world.read(`/assets/${segment(id)}`, Detail)).asset,

    /** An asset with certain properties: made by the admin API, or found among the newest. `proves` tests a candidate. */
    async asset(
      what: string,
      make: NewAsset,
      fits: (asset: Asset) => boolean,
      proves: (asset: Asset) => Promise<boolean> = async () => true,
    ): Promise<Asset> {
      if (own) return world.detail(await world.upload(make));
      listing ??= newest();
      for (const asset of (await listing).filter(fits).slice(0, CANDIDATES)) {
        if (await proves(asset)) return asset;
      }
      throw new NotTried(`this library shows no ${what} among its newest assets; --admin makes one`);
    },

    async upload(asset: NewAsset, companyId = world.needOwn().companyId): Promise<string> {
      const { transcript, ...rest } = asset;
      const { id } = await world.needAdmin().addAsset(companyId, rest);
      made.push(id);
      // Not with the upload: then the transcript would exist some minutes later.
      if (transcript !== undefined) await world.needAdmin().changeAsset(id, { transcript });
      return id;
    },

    /** A request to a signed link, as an app sends it: with Referer, without token. */
    download(
      url: string,
      { headers = {}, method, limit = 1024 * 1024, referer = app }: Downloading = {},
    ): Promise<Answer> {
      return send(url, {
        ...(method && { method }),
        limit,
        headers: { 'accept-encoding': 'identity', ...(referer !== null && { referer }), ...headers },
      });
    },

    /** Another user with another company. */
    async newPerson(): Promise<Person & { userId: string; companyId: string; secondId: string }> {
      return newPerson(world.needAdmin(), send, made);
    },

    async close(): Promise<void> {
      for (const [token, client] of granted) await world.revoke(token, client).catch(() => {});
      for (const id of made) {
        await (id.startsWith('usr_') ? admin!.removeUser(id) : admin!.removeAsset(id)).catch(() => {});
      }
      if (own) await admin!.removeUser(own.userId).catch(() => {});
      await disconnect();
    },
  };
  return world;
}

export type Downloading = {
  headers?: Record<string, string>;
  method?: 'GET' | 'HEAD';
  limit?: number;
  /** Null: without it. */
  referer?: string | null;
};

export function challengeOf(verifier: string): string {
  return createHash('sha256').update(verifier).digest('base64url');
}

export function basic({ clientId, clientSecret }: Client): string {
  return `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}`;
}

export function segment(id: string): string {
  return encodeURIComponent(id);
}

function queryOf(query: Record<string, string | number>): URLSearchParams {
  return new URLSearchParams(Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]));
}

function duration(seconds: number): string {
  return seconds >= 86_400
    ? `${Math.round(seconds / 86_400)} days`
    : seconds >= 3600
      ? `${Math.round(seconds / 3600)} h`
      : `${Math.round(seconds / 60)} min`;
}

const LOGO = 'https://conformance.example/logo.png';
const APP = 'Conformance <suite> & Co';

/** With an admin API, a run makes its own app (unless one is given), user, companies and assets. */
async function settle(admin: Admin, given: Options) {
  const app =
    given.clientId === undefined
      ? {
          ...(await admin.addApp({
            name: APP,
            logoUrl: LOGO,
            websiteUrl: 'https://conformance.example/',
            redirectUris: [given.redirectUri],
          })),
          appName: APP,
          logoUrl: LOGO,
        }
      : {};
  const name = randomBytes(4).toString('hex');
  const user = await admin.addUser({
    name: 'Conny Formance',
    email: `conformance-${name}@example.com`,
    password: randomBytes(12).toString('base64url'),
  });
  const company = await admin.addCompany(`Conformance ${name}`, user.id);
  const other = await admin.addCompany(`Second ${name}`, user.id);
  let filled: Promise<void> | undefined;
  return {
    app,
    userId: user.id,
    companyId: company.id,
    companyName: company.name,
    otherId: other.id,
    person: (send: Send): Person => ({ email: user.email, password: user.password, browser: createBrowser(send) }),
    fill: (made: string[]) => {
      filled ??= fill(admin, company.id, made);
      return filled;
    },
  };
}

const KINDS = [
  ['videos', 'video/mp4'],
  ['selects', 'video/quicktime'],
  ['social', 'video/mp4'],
  ['photography', 'image/jpeg'],
  ['graphics', 'image/png'],
  ['audio', 'audio/mpeg'],
  ['documents', 'application/pdf'],
  ['brand assets', 'application/zip'],
] as const;

/** 130 assets of all types, with and without project, some uploaded in the same millisecond. */
async function fill(admin: Admin, companyId: string, made: string[]): Promise<void> {
  const projects = [await admin.addProject(companyId, 'First project'), await admin.addProject(companyId, 'Ünother')];
  const newest = Date.UTC(2025, 5, 1);
  for (let i = 0; i < 130; i++) {
    const [assetType, mimeType] = KINDS[i % KINDS.length]!;
    const project = projects[i % 3];
    const { id } = await admin.addAsset(companyId, {
      name: `${assetType} ${i}`,
      assetType,
      mimeType,
      status: 'ready',
      // In a mixed order, and every fifth in the same millisecond as the next.
      uploadDate: newest - ((i * 37) % 130) * 60_000 - (i % 5 === 0 ? 60_000 : 0),
      ...(project && { projectId: project.id }),
    });
    made.push(id);
  }
}

async function newPerson(admin: Admin, send: Send, made: string[]) {
  const name = randomBytes(4).toString('hex');
  const password = randomBytes(12).toString('base64url');
  const user = await admin.addUser({ name: 'Other', email: `other-${name}@example.com`, password });
  made.push(user.id);
  const company = await admin.addCompany(`Other ${name}`, user.id);
  const second = await admin.addCompany(`Other second ${name}`, user.id);
  const browser = createBrowser(send);
  return { email: user.email, password, browser, userId: user.id, companyId: company.id, secondId: second.id };
}
