import type { Send } from './http.ts';

export type NewApp = { name: string; logoUrl?: string; websiteUrl?: string; redirectUris: string[] };
export type App = { clientId: string; clientSecret: string };
export type NewUser = { name: string; email: string; password: string };

/** The properties of an asset that is made for a check. */
export type NewAsset = {
  name: string;
  mimeType: string;
  assetType: string;
  projectId?: string;
  status?: 'ready' | 'processing' | 'unavailable';
  uploadDate?: number;
  content?: { text: string } | { seed: string; size: number };
  mp4?: { text: string } | null;
  originalGone?: boolean;
  transcript?: object | null;
  tags?: string[];
  duration?: number;
  width?: number;
  height?: number;
};

export type Admin = ReturnType<typeof createAdmin>;

/** A client of the admin API (`src/library/README.md`), for states that the public API cannot make. */
export function createAdmin(url: string, send: Send) {
  async function ask<T>(method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: object): Promise<T> {
    const answer = await tell(method, path, body);
    if (answer.status >= 300) throw new Error(`the admin API: ${answer.request} → ${answer.status} ${answer.text}`);
    return answer.json as T;
  }

  function tell(method: 'GET' | 'POST' | 'PATCH' | 'DELETE', path: string, body?: object) {
    const headers = { 'content-type': 'application/json' };
    return send(url + path, { method, ...(body && { headers, body: JSON.stringify(body) }) });
  }

  return {
    addApp: (app: NewApp) => ask<App>('POST', '/apps', app),
    tryApp: (app: NewApp) => tell('POST', '/apps', app),
    rotateSecret: (clientId: string) => ask<App>('POST', `/apps/${clientId}/secret`),
    addUser: (user: NewUser) => ask<NewUser & { id: string }>('POST', '/users', user),
    removeUser: (id: string) => ask<object>('DELETE', `/users/${id}`),
    addCompany: (name: string, userId: string) =>
      ask<{ id: string; name: string }>('POST', '/companies', { name, userIds: [userId] }),
    setAccess: (companyId: string, userId: string, allowed: boolean) =>
      ask<object>('POST', `/companies/${companyId}/access`, { userId, allowed }),
    addProject: (companyId: string, name: string) => ask<{ id: string }>('POST', '/projects', { companyId, name }),
    addAsset: (companyId: string, asset: NewAsset) => ask<{ id: string }>('POST', '/assets', { companyId, ...asset }),
    changeAsset: (id: string, change: Partial<NewAsset>) => ask<object>('PATCH', `/assets/${id}`, change),
    removeAsset: (id: string) => ask<object>('DELETE', `/assets/${id}`),
    advanceClock: (seconds: number) => ask<{ now: number }>('POST', '/clock', { seconds }),
  };
}
