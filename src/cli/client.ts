import { z } from 'zod';

/** The service did not answer at all: exit code 3. */
export class NotReachable extends Error {
  override readonly name = 'NotReachable';
}

export type ApiClient = ReturnType<typeof createApiClient>;

/** The operator API of a running service. */
export function createApiClient(options: { url: string; adminToken: string | undefined }) {
  /** Undefined `patience`: as long as it takes. */
  async function ask(method: string, path: string, body?: unknown, patience?: AbortSignal): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(`${options.url}/api${path}`, {
        method,
        headers: {
          ...(options.adminToken && { authorization: `Bearer ${options.adminToken}` }),
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
        ...(patience && { signal: patience }),
      });
    } catch {
      throw new NotReachable(
        `No asset-mirror answers at ${options.url}. Start it with \`asset-mirror start\`, or set ASSET_MIRROR_URL to where it runs.`,
      );
    }
    if (response.ok) return response;
    const text = await response.text();
    if (response.status === 401) {
      throw new Error(`${options.url} does not accept the operators' token. Set ADMIN_TOKEN to that of the service.`);
    }
    let problem: unknown;
    try {
      problem = JSON.parse(text);
    } catch {
      problem = undefined;
    }
    const { detail } = z.object({ detail: z.string() }).safeParse(problem).data ?? {};
    throw new Error(detail ?? `${options.url} answered ${response.status}`);
  }

  async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await ask(method, path, body, AbortSignal.timeout(30_000))).json() as T;
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

  return {
    createConnectLink: (request: { connectionId?: string | undefined }) =>
      call<{ url: string; expiresAt: string }>('POST', '/connect-links', request),
    changeSettings: (request: SettingsRequest) => call<Settings>('PATCH', '/settings', request),
    status: () => call<Status>('GET', '/status'),
    connection: (id: string) => call<ConnectionSummary>('GET', `/connections/${encodeURIComponent(id)}`),
    changeConnection: (id: string, request: ConnectionSettingsRequest) =>
      call<ChangedConnection>('PATCH', `/connections/${encodeURIComponent(id)}`, request),
    plan: (connectionId: string | undefined, onProgress: (progress: PlanProgress) => void) =>
      follow<Plan, PlanProgress>(
        connectionId === undefined ? '/plan' : `/plan?connectionId=${encodeURIComponent(connectionId)}`,
        onProgress,
      ),
    connections: () => call<{ connections: ConnectionSummary[] }>('GET', '/connections'),
    resync: (connectionId: string, request: ResyncRequest) =>
      call<{ syncId: string }>('POST', `/connections/${encodeURIComponent(connectionId)}/resync`, request),
    verify: (request: VerifyRequest) => call<{ id: string }>('POST', '/verify', request),
    verification: (id: string, page: { after: number; limit: number }) =>
      call<Verification>('GET', `/verify/${encodeURIComponent(id)}?after=${page.after}&limit=${page.limit}`),
    rotateKeys: () => call<RotatedKeys>('POST', '/keys/rotate'),
  };
}

export type Plan = import('../operations/plan.ts').Plan;
export type PlanProgress = import('../jobs/plan.ts').PlanProgress;
type Operations = import('../operations/operations.ts').Operations;
export type ResyncRequest = import('../operations/syncs.ts').ResyncRequest;
export type VerifyRequest = import('../operations/verifications.ts').VerifyRequest;
export type Verification = Awaited<ReturnType<Operations['verification']>>;
export type RotatedKeys = Awaited<ReturnType<Operations['rotateKeys']>>;
export type SettingsRequest = import('../operations/settings.ts').SettingsRequest;
export type ConnectionSettingsRequest = import('../operations/connection-settings.ts').ConnectionSettingsRequest;
export type ChangedConnection = Awaited<ReturnType<Operations['changeConnection']>>;
export type Settings = Awaited<ReturnType<Operations['settings']>>;
export type Status = Awaited<ReturnType<Operations['status']>>;
export type ConnectionSummary = Awaited<ReturnType<Operations['connections']>>['connections'][number];
