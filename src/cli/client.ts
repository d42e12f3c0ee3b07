import type { Role } from '../floor/roles.ts';
import type { Answer, Asked, ConnectionSummary, EventFilter, OperationName, Plan, PlanProgress } from './answers.ts';
import { type EventHandlers, followEvents } from './follow-events.ts';
import { mostRows } from './options.ts';
import { addressOf, call, followWork, type Service } from './request.ts';

/** A sign-in that waits for the person. */
interface BegunLogin {
  device: string;
  userCode: string;
  url: string;
  intervalMs: number;
  expiresAt: string;
}
type LoginAnswer = { pending: true; slowDown: boolean } | { token: string; name: string; role: Role };

/** Requests whose answers have the type of the operation `Name`. */
function requestsTo(service: Service) {
  return {
    get: <Name extends OperationName>(path: string, query: object = {}) =>
      call<Answer<Name>>(service, 'GET', addressOf(path, query)),
    send: <Name extends OperationName>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown) =>
      call<Answer<Name>>(service, method, path, body),
    part: (id: string) => encodeURIComponent(id),
  };
}
type Requests = ReturnType<typeof requestsTo>;

export type ApiClient = ReturnType<typeof createApiClient>;

/** The operator API of a running asset-mirror: one function for each route that a verb uses. */
export function createApiClient(service: Service) {
  const requests = requestsTo(service);
  const { get, send, part } = requests;

  const connections = (query: Asked<'connections'> = {}) => get<'connections'>('/connections', query);
  const assets = (query: Asked<'assets'>) => get<'assets'>('/assets', query);

  return {
    /** The address of a page of the dashboard. */
    async page(path: string): Promise<string> {
      const settings = await get<'settings'>('/settings').catch(() => undefined);
      return `${settings?.publicUrl ?? service.url}/#${path}`;
    },
    createConnectLink: (request: Asked<'createConnectLink'>) =>
      send<'createConnectLink'>('POST', '/connect-links', request),
    settings: () => get<'settings'>('/settings'),
    changeSettings: (request: Asked<'changeSettings'>) => send<'changeSettings'>('PATCH', '/settings', request),
    scrub: () => get<'scrub'>('/scrub'),
    status: () => get<'status'>('/status'),

    connections,
    async allConnections(query: Asked<'connections'> = {}): Promise<ConnectionSummary[]> {
      const pages = await Array.fromAsync(allPages((page) => connections({ ...query, ...page })));
      return pages.flatMap((page) => page.connections);
    },
    connection: (id: string) => get<'connection'>(`/connections/${part(id)}`),
    changeConnection: (id: string, request: Asked<'changeConnection', 1>) =>
      send<'changeConnection'>('PATCH', `/connections/${part(id)}`, request),
    plan: (connectionId: string | undefined, onProgress: (progress: PlanProgress) => void) =>
      followWork<Plan, PlanProgress>(service, addressOf('/plan', { connectionId }), onProgress),
    pause: (id: string) => send<'pause'>('POST', `/connections/${part(id)}/pause`),
    resume: (id: string) => send<'resume'>('POST', `/connections/${part(id)}/resume`),
    disconnect: (id: string) => send<'disconnect'>('POST', `/connections/${part(id)}/disconnect`),
    retryFailed: (id: string) => send<'retryFailed'>('POST', `/connections/${part(id)}/retry-failed`),
    resync: (connectionId: string, request: Asked<'resync', 1>) =>
      send<'resync'>('POST', `/connections/${part(connectionId)}/resync`, request),

    assets,
    assetPages: (query: Asked<'assets'>) => allPages((page) => assets({ ...query, ...page })),
    facets: (query: Asked<'facets'>) => get<'facets'>('/asset-facets', query),
    asset: (id: string) => get<'asset'>(`/assets/${part(id)}`),
    versions: (id: string) => get<'versions'>(`/assets/${part(id)}/versions`),
    retry: (id: string) => send<'retry'>('POST', `/assets/${part(id)}/retry`),

    syncs: (query: Asked<'syncs'>) => get<'syncs'>('/syncs', query),
    sync: (id: string) => get<'sync'>(`/syncs/${part(id)}`),

    events: (query: Asked<'events'>) => get<'events'>('/events', query),
    followEvents: (filter: EventFilter, handlers: EventHandlers) => followEvents(service, filter, handlers),

    verify: (request: Asked<'verify'>) => send<'verify'>('POST', '/verify', request),
    verification: (id: string, page: Asked<'verification', 1>) => get<'verification'>(`/verify/${part(id)}`, page),
    assuranceReport: (query: Asked<'assuranceReport'>) => get<'assuranceReport'>('/assurance/report', query),
    startDrill: (request: Asked<'startDrill'>) => send<'startDrill'>('POST', '/drills', request),
    drill: (id: string) => get<'drill'>(`/drills/${part(id)}`),
    ...removalRequests(requests),
    ...webhookRequests(requests),
    ...accessRequests(service, requests),
  };
}

const removalRequests = ({ get, send, part }: Requests) => ({
  removals: () => get<'removals'>('/removals'),
  holds: () => get<'holds'>('/holds'),
  hold: (request: Asked<'hold'>) => send<'hold'>('POST', '/holds', request),
  release: (request: Asked<'release'>) => send<'release'>('POST', '/holds/release', request),
  previewErasure: (scope: Asked<'previewErasure'>) => send<'previewErasure'>('POST', '/erasures/preview', scope),
  erase: (request: Asked<'erase'>) => send<'erase'>('POST', '/erasures', request),
  erasure: (id: string) => get<'erasure'>(`/erasures/${part(id)}`),
  erasures: () => get<'erasures'>('/erasures'),
  erasureCertificate: (id: string) => get<'certificate'>(`/erasures/${part(id)}/certificate`),
});

const webhookRequests = ({ get, send, part }: Requests) => ({
  webhooks: () => get<'webhooks'>('/webhooks'),
  addWebhook: (request: Asked<'addWebhook'>) => send<'addWebhook'>('POST', '/webhooks', request),
  changeWebhook: (id: string, change: Asked<'changeWebhook', 1>) =>
    send<'changeWebhook'>('PATCH', `/webhooks/${part(id)}`, change),
  removeWebhook: (id: string) => send<'removeWebhook'>('DELETE', `/webhooks/${part(id)}`),
  deliveries: (id: string, query: Asked<'deliveries', 1>) =>
    get<'deliveries'>(`/webhooks/${part(id)}/deliveries`, query),
  redeliver: (id: string, request: Asked<'redeliver', 1>) =>
    send<'redeliver'>('POST', `/webhooks/${part(id)}/redeliver`, request),
  /** Tests the endpoint in WEBHOOK_URL if there is no id. */
  testWebhook: (id: string | undefined) =>
    send<'testWebhook'>('POST', id === undefined ? '/webhooks/test' : `/webhooks/${part(id)}/test`),
});

/** Operators, their sessions and tokens, and what they did. */
function accessRequests(service: Service, { get, send, part }: Requests) {
  const audit = (query: Asked<'auditLog'>) => get<'auditLog'>('/audit', query);
  return {
    me: () => get<'me'>('/me'),
    sessions: () => get<'sessions'>('/sessions'),
    endSession: (id: string) => send<'endSession'>('DELETE', `/sessions/${part(id)}`),
    tokens: () => get<'tokens'>('/tokens'),
    createToken: (request: Asked<'createToken'>) => send<'createToken'>('POST', '/tokens', request),
    revokeToken: (id: string) => send<'revokeToken'>('DELETE', `/tokens/${part(id)}`),
    audit,
    auditPages: (query: Asked<'auditLog'>) => allPages((page) => audit({ ...query, ...page })),
    beginLogin: () => call<BegunLogin>({ ...service, at: '/sign-in' }, 'POST', '/device'),
    finishLogin: (device: string) =>
      call<LoginAnswer>({ ...service, at: '/sign-in' }, 'POST', '/device/token', { device }),
    rotateKeys: () => send<'rotateKeys'>('POST', '/keys/rotate'),
  };
}

async function* allPages<Page extends { nextCursor: string | null }>(
  list: (page: { cursor: string | undefined; limit: number }) => Promise<Page>,
): AsyncGenerator<Page> {
  for (let cursor: string | undefined; ; ) {
    const page = await list({ cursor, limit: mostRows });
    yield page;
    if (page.nextCursor === null) return;
    cursor = page.nextCursor;
  }
}
