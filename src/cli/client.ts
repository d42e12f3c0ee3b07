import { EventSource } from 'eventsource';
import { z } from 'zod';
import { NotReachable, RefusedByService, UsageError } from './failures.ts';
import { mostRows } from './options.ts';

export type ApiClient = ReturnType<typeof createApiClient>;

const problem = z.object({ detail: z.string(), code: z.string().optional() });

/** The operator API of a running service. */
export function createApiClient(options: { url: string; adminToken: string | undefined }) {
  const notOurs = (status: number) =>
    new NotReachable(
      `${options.url} answered ${status}, and not as an asset-mirror does. Set ASSET_MIRROR_URL to where it runs, or see what is in front of it.`,
    );

  /** Without a signal, as long as it takes. */
  async function ask(
    method: string,
    path: string,
    body?: unknown,
    { signal, headers }: { signal?: AbortSignal | undefined; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(`${options.url}/api${path}`, {
        method,
        headers: {
          accept: 'application/json',
          ...headers,
          ...(options.adminToken && { authorization: `Bearer ${options.adminToken}` }),
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(signal && { signal }),
      });
    } catch {
      throw new NotReachable(
        `No asset-mirror answers at ${options.url}. Start it with \`asset-mirror start\`, or set ASSET_MIRROR_URL to where it runs.`,
      );
    }
    if (response.ok) return response;
    if (response.status === 401) {
      throw new UsageError(
        `${options.url} does not accept the operators' token. Set ADMIN_TOKEN to that of the service.`,
      );
    }
    const { detail, code } = problem.safeParse(await response.json().catch(() => undefined)).data ?? {};
    if (detail === undefined) throw notOurs(response.status);
    throw new RefusedByService(detail, response.status, code);
  }

  async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const response = await ask(method, path, body, { signal: AbortSignal.timeout(30_000) });
    try {
      return (await response.json()) as T;
    } catch {
      throw notOurs(response.status);
    }
  }

  /**
   * Tells events as they happen, and misses none: the line is mended by itself. `open` when the first line is there; `end`
   * never resolves, and rejects when the service refuses, or does not answer at the beginning.
   */
  function followEvents(
    filter: EventFilter,
    heard: { onEvent: (event: MirrorEvent) => void; onLine: (good: boolean) => void },
  ): { open: Promise<void>; end: Promise<never> } {
    const opened = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<never>();
    // Between two lines nothing else keeps this process alive.
    const awake = setInterval(() => {}, 60_000);
    let wasOpen = false;
    const source = new EventSource(`${options.url}/api${addressOf('/events', filter)}`, {
      fetch: (_url, { headers, signal }) =>
        ask('GET', addressOf('/events', filter), undefined, { headers, signal }).catch((error) => {
          const passing = error instanceof NotReachable || (error instanceof RefusedByService && error.status >= 500);
          if (!wasOpen || !passing) fail(error);
          throw error;
        }),
    });
    const fail = (error: Error) => {
      source.close();
      clearInterval(awake);
      ended.reject(error);
    };
    source.addEventListener('open', () => {
      wasOpen = true;
      opened.resolve();
      heard.onLine(true);
    });
    source.addEventListener('error', ({ code }) => {
      if (source.readyState === source.CLOSED) fail(notOurs(code ?? 0));
      else heard.onLine(false);
    });
    source.addEventListener('message', ({ data }) => heard.onEvent(JSON.parse(data)));
    return { open: opened.promise, end: ended.promise };
  }

  /** Work that says how far it is, a line of JSON each time. Whoever ends this process ends it. */
  async function follow<T, P>(path: string, onProgress: (progress: P) => void): Promise<T> {
    const response = await ask('GET', path);
    const decoder = new TextDecoder();
    let rest = '';
    for await (const chunk of response.body!) {
      rest += decoder.decode(chunk, { stream: true });
      const lines = rest.split('\n');
      rest = lines.pop()!;
      for (const line of lines) {
        const { progress, result, error } = JSON.parse(line) as {
          progress?: P;
          result?: T;
          error?: { detail: string };
        };
        if (progress) onProgress(progress);
        if (error) throw new Error(error.detail);
        if (result) return result;
      }
    }
    throw new Error(`${options.url} broke off in the middle of the answer; try again`);
  }

  const get = <T>(path: string, query: object = {}) => call<T>('GET', addressOf(path, query));
  const part = (id: string) => encodeURIComponent(id);

  const connections = (query: ConnectionQuery = {}) => get<ConnectionList>('/connections', query);
  const assets = (query: AssetQuery = {}) => get<AssetList>('/assets', query);

  return {
    createConnectLink: (request: { connectionId?: string | undefined }) =>
      call<{ url: string; expiresAt: string }>('POST', '/connect-links', request),
    settings: () => get<Settings>('/settings'),
    changeSettings: (request: SettingsRequest) => call<Settings>('PATCH', '/settings', request),
    status: () => get<Status>('/status'),

    connections,
    async allConnections(query: ConnectionQuery = {}): Promise<ConnectionSummary[]> {
      const all: ConnectionSummary[] = [];
      for (let cursor: string | undefined; ; ) {
        const page = await connections({ ...query, cursor, limit: mostRows });
        all.push(...page.connections);
        if (page.nextCursor === null) return all;
        cursor = page.nextCursor;
      }
    },
    connection: (id: string) => get<ConnectionSummary>(`/connections/${part(id)}`),
    changeConnection: (id: string, request: ConnectionSettingsRequest) =>
      call<ChangedConnection>('PATCH', `/connections/${part(id)}`, request),
    plan: (connectionId: string | undefined, onProgress: (progress: PlanProgress) => void) =>
      follow<Plan, PlanProgress>(addressOf('/plan', { connectionId }), onProgress),
    pause: (id: string) => call<ConnectionSummary>('POST', `/connections/${part(id)}/pause`),
    resume: (id: string) => call<ConnectionSummary>('POST', `/connections/${part(id)}/resume`),
    disconnect: (id: string) => call<Disconnected>('POST', `/connections/${part(id)}/disconnect`),
    retryFailed: (id: string) => call<{ retried: number }>('POST', `/connections/${part(id)}/retry-failed`),
    resync: (connectionId: string, request: ResyncRequest) =>
      call<{ syncId: string }>('POST', `/connections/${part(connectionId)}/resync`, request),

    assets,
    /** Page by page, to the end. */
    async *assetPages(query: AssetQuery = {}) {
      for (let cursor: string | undefined; ; ) {
        const page = await assets({ ...query, cursor, limit: mostRows });
        yield page.assets;
        if (page.nextCursor === null) return;
        cursor = page.nextCursor;
      }
    },
    asset: (id: string) => get<Asset>(`/assets/${part(id)}`),
    retry: (id: string) => call<Asset>('POST', `/assets/${part(id)}/retry`),

    syncs: (query: SyncQuery = {}) => get<SyncList>('/syncs', query),
    sync: (id: string) => get<Sync>(`/syncs/${part(id)}`),

    events: (query: EventQuery = {}) => get<EventList>('/events', query),
    followEvents,

    verify: (request: VerifyRequest) => call<{ id: string }>('POST', '/verify', request),
    verification: (id: string, page: { after: number; limit: number }) =>
      get<Verification>(`/verify/${part(id)}`, page),
    rotateKeys: () => call<RotatedKeys>('POST', '/keys/rotate'),
  };
}

function addressOf(path: string, query: object): string {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}

export type Plan = import('../operations/plan.ts').Plan;
export type PlanProgress = import('../operations/plan.ts').PlanProgress;
type Operations = import('../operations/operations.ts').Operations;
type Answer<Verb extends keyof Operations> = Awaited<ReturnType<Operations[Verb]>>;
export type ConnectionQuery = import('../operations/connections.ts').ConnectionQuery;
export type AssetQuery = import('../operations/assets.ts').AssetQuery;
export type SyncQuery = import('../operations/syncs.ts').SyncQuery;
export type EventQuery = import('../operations/events.ts').EventQuery;
export type ResyncRequest = import('../operations/syncs.ts').ResyncRequest;
export type VerifyRequest = import('../operations/verifications.ts').VerifyRequest;
export type SettingsRequest = import('../operations/settings.ts').SettingsRequest;
export type ConnectionSettingsRequest = import('../operations/connection-settings.ts').ConnectionSettingsRequest;
export type Verification = Answer<'verification'>;
export type RotatedKeys = Answer<'rotateKeys'>;
export type ChangedConnection = Answer<'changeConnection'>;
export type Settings = Answer<'settings'>;
export type Status = Answer<'status'>;
export type ConnectionList = Answer<'connections'>;
export type ConnectionSummary = Answer<'connection'>;
export type Disconnected = Answer<'disconnect'>;
export type AssetList = Answer<'assets'>;
export type Asset = Answer<'asset'>;
export type SyncList = Answer<'syncs'>;
export type Sync = Answer<'sync'>;
export type EventList = Answer<'events'>;
export type MirrorEvent = EventList['events'][number];
type EventFilter = Pick<EventQuery, 'connectionId' | 'assetId' | 'kind'>;
