import type { Role } from '../roles.ts';
import type {
  Asset,
  AssetList,
  AssetQuery,
  AuditList,
  AuditQuery,
  ChangedConnection,
  ChangedWebhook,
  ChangeList,
  ChangeQuery,
  ConnectionList,
  ConnectionQuery,
  ConnectionSettingsRequest,
  ConnectionSummary,
  ConnectLinkRequest,
  CreatedToken,
  DeliveryList,
  DeliveryQuery,
  Disconnected,
  Drill,
  DrillRequest,
  Erasure,
  ErasureCertificate,
  ErasureList,
  ErasurePreview,
  ErasureRequest,
  ErasureScopeRequest,
  EventFilter,
  EventList,
  EventQuery,
  FacetList,
  FacetQuery,
  HoldList,
  HoldRequest,
  Me,
  Plan,
  PlanProgress,
  RedeliverRequest,
  ReleaseRequest,
  Removals,
  ResyncRequest,
  RotatedKeys,
  Scrub,
  SessionList,
  Settings,
  SettingsRequest,
  SignedReport,
  Status,
  Sync,
  SyncList,
  SyncQuery,
  TestedWebhook,
  TokenList,
  TokenRequest,
  Verification,
  VerifyRequest,
  VersionList,
  WebhookChange,
  WebhookList,
  WebhookRequest,
} from './answers.ts';
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
type LoginAnswer = { pending: true } | { token: string; name: string; role: Role };

export type ApiClient = ReturnType<typeof createApiClient>;

/** The operator API of a running asset-mirror: one function for each route that a verb uses. */
export function createApiClient(service: Service) {
  const get = <T>(path: string, query: object = {}) => call<T>(service, 'GET', addressOf(path, query));
  const send = <T>(method: 'POST' | 'PATCH' | 'DELETE', path: string, body?: unknown) =>
    call<T>(service, method, path, body);
  const part = (id: string) => encodeURIComponent(id);

  const connections = (query: ConnectionQuery = {}) => get<ConnectionList>('/connections', query);
  const audit = (query: AuditQuery) => get<AuditList>('/audit', query);
  const assets = (query: AssetQuery = {}) => get<AssetList>('/assets', query);

  return {
    /** The address of a page of the dashboard. */
    page: (path: string) => `${service.url}/#${path}`,
    createConnectLink: (request: ConnectLinkRequest) =>
      send<{ url: string; expiresAt: string }>('POST', '/connect-links', request),
    settings: () => get<Settings>('/settings'),
    changeSettings: (request: SettingsRequest) => send<Settings>('PATCH', '/settings', request),
    scrub: () => get<Scrub>('/scrub'),
    status: () => get<Status>('/status'),

    connections,
    async allConnections(query: ConnectionQuery = {}): Promise<ConnectionSummary[]> {
      const pages = await Array.fromAsync(allPages((page) => connections({ ...query, ...page })));
      return pages.flatMap((page) => page.connections);
    },
    connection: (id: string) => get<ConnectionSummary>(`/connections/${part(id)}`),
    changeConnection: (id: string, request: ConnectionSettingsRequest) =>
      send<ChangedConnection>('PATCH', `/connections/${part(id)}`, request),
    plan: (connectionId: string | undefined, onProgress: (progress: PlanProgress) => void) =>
      followWork<Plan, PlanProgress>(service, addressOf('/plan', { connectionId }), onProgress),
    pause: (id: string) => send<ConnectionSummary>('POST', `/connections/${part(id)}/pause`),
    resume: (id: string) => send<ConnectionSummary>('POST', `/connections/${part(id)}/resume`),
    disconnect: (id: string) => send<Disconnected>('POST', `/connections/${part(id)}/disconnect`),
    retryFailed: (id: string) => send<{ retried: number }>('POST', `/connections/${part(id)}/retry-failed`),
    resync: (connectionId: string, request: ResyncRequest) =>
      send<{ syncId: string }>('POST', `/connections/${part(connectionId)}/resync`, request),

    assets,
    assetPages: (query: AssetQuery = {}) => allPages((page) => assets({ ...query, ...page })),
    facets: (query: FacetQuery) => get<FacetList>('/asset-facets', query),
    asset: (id: string) => get<Asset>(`/assets/${part(id)}`),
    versions: (id: string) => get<VersionList>(`/assets/${part(id)}/versions`),
    retry: (id: string) => send<AssetList['assets'][number]>('POST', `/assets/${part(id)}/retry`),

    syncs: (query: SyncQuery = {}) => get<SyncList>('/syncs', query),
    sync: (id: string) => get<Sync>(`/syncs/${part(id)}`),

    events: (query: EventQuery = {}) => get<EventList>('/events', query),
    followEvents: (filter: EventFilter, handlers: EventHandlers) => followEvents(service, filter, handlers),

    changes: (query: ChangeQuery) => get<ChangeList>('/changes', query),

    verify: (request: VerifyRequest) => send<{ id: string }>('POST', '/verify', request),
    verification: (id: string, page: { after: number; limit: number }) =>
      get<Verification>(`/verify/${part(id)}`, page),
    assuranceReport: (query: { month: string; connectionId: string | undefined }) =>
      get<SignedReport>('/assurance/report', query),
    startDrill: (request: DrillRequest) => send<{ id: string }>('POST', '/drills', request),
    drill: (id: string) => get<Drill>(`/drills/${part(id)}`),
    removals: () => get<Removals>('/removals'),
    holds: () => get<HoldList>('/holds'),
    hold: (request: HoldRequest) => send<{ changed: number }>('POST', '/holds', request),
    release: (request: ReleaseRequest) => send<{ changed: number }>('POST', '/holds/release', request),
    previewErasure: (scope: ErasureScopeRequest) => send<ErasurePreview>('POST', '/erasures/preview', scope),
    erase: (request: ErasureRequest) => send<Erasure>('POST', '/erasures', request),
    erasure: (id: string) => get<Erasure>(`/erasures/${part(id)}`),
    erasures: () => get<ErasureList>('/erasures'),
    erasureCertificate: (id: string) => get<ErasureCertificate>(`/erasures/${part(id)}/certificate`),
    webhooks: () => get<WebhookList>('/webhooks'),
    addWebhook: (request: WebhookRequest) => send<ChangedWebhook>('POST', '/webhooks', request),
    changeWebhook: (id: string, change: WebhookChange) =>
      send<ChangedWebhook>('PATCH', `/webhooks/${part(id)}`, change),
    removeWebhook: (id: string) => send<{ id: string }>('DELETE', `/webhooks/${part(id)}`),
    deliveries: (id: string, query: DeliveryQuery) => get<DeliveryList>(`/webhooks/${part(id)}/deliveries`, query),
    redeliver: (id: string, request: RedeliverRequest) =>
      send<{ redelivered: number }>('POST', `/webhooks/${part(id)}/redeliver`, request),
    /** Without an id: the endpoint in WEBHOOK_URL. */
    testWebhook: (id: string | undefined) =>
      send<TestedWebhook>('POST', id === undefined ? '/webhooks/test' : `/webhooks/${part(id)}/test`),
    me: () => get<Me>('/me'),
    sessions: () => get<SessionList>('/sessions'),
    endSession: (id: string) => send<{ id: string }>('DELETE', `/sessions/${part(id)}`),
    tokens: () => get<TokenList>('/tokens'),
    createToken: (request: TokenRequest) => send<CreatedToken>('POST', '/tokens', request),
    revokeToken: (id: string) => send<{ id: string; name: string }>('DELETE', `/tokens/${part(id)}`),
    audit,
    auditPages: (query: AuditQuery) => allPages((page) => audit({ ...query, ...page })),
    beginLogin: () => call<BegunLogin>({ ...service, at: '/sign-in' }, 'POST', '/device'),
    finishLogin: (device: string) =>
      call<LoginAnswer>({ ...service, at: '/sign-in' }, 'POST', '/device/token', { device }),
    rotateKeys: () => send<RotatedKeys>('POST', '/keys/rotate'),
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
