import { createHash, randomBytes } from 'node:crypto';
import type { Change, Upload } from '../../src/library/admin/assets.ts';
import type { Rule } from '../../src/library/faults/rules.ts';
import { type Library, type LibraryOptions, startLibrary } from '../../src/library/index.ts';
import type { Company, Project, Registration, User } from '../../src/library/model.ts';
import type { Entry } from '../../src/library/requests.ts';

export type { Change, Entry, Library, LibraryOptions, Rule, Upload };

/** An asset as the API lists it. */
export type ListedAsset = {
  id: string;
  name: string;
  mimeType: string;
  assetType: string;
  size: number;
  duration?: number;
  width?: number;
  height?: number;
  projectId?: string;
  projectName?: string;
  tags: string[];
  uploadDate: number;
  status: string;
  hasTranscript: boolean;
  thumbnailUrl?: string;
};

export type DetailedAsset = ListedAsset & {
  download: { url: string; mp4Url: string | null; filename: string; expiresAt: number };
};

export type Admin = ReturnType<typeof adminOf>;

/** The admin API of a library, in this process or another. */
export function adminOf(adminUrl: string) {
  async function send<T>(method: string, path: string, body?: object): Promise<T> {
    const response = await fetch(adminUrl + path, {
      method,
      ...(body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }),
    });
    const answer = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${answer}`);
    return JSON.parse(answer);
  }

  return {
    addApp: (app: { name: string; logoUrl?: string; websiteUrl: string; redirectUris: string[] }) =>
      send<{ clientId: string; clientSecret: string }>('POST', '/apps', app),
    apps: () => send<Registration[]>('GET', '/apps'),
    changeApp: (clientId: string, change: Partial<Registration>) =>
      send<Registration>('PATCH', `/apps/${clientId}`, change),
    removeApp: (clientId: string) => send<object>('DELETE', `/apps/${clientId}`),
    rotateSecret: (clientId: string) => send<{ clientSecret: string }>('POST', `/apps/${clientId}/secret`),

    users: () => send<User[]>('GET', '/users'),
    addUser: (user: { id?: string; name: string; email: string; password?: string }) =>
      send<User & { password: string }>('POST', '/users', user),
    removeUser: (userId: string) => send<object>('DELETE', `/users/${userId}`),
    companies: () => send<Company[]>('GET', '/companies'),
    addCompany: (company: { id?: string; name: string; userIds?: string[] }) =>
      send<Company>('POST', '/companies', company),
    setAccess: (companyId: string, userId: string, allowed: boolean) =>
      send<object>('POST', `/companies/${companyId}/access`, { userId, allowed }),
    addProject: (project: { id?: string; companyId: string; name: string; status?: string }) =>
      send<Project>('POST', '/projects', project),

    /** Audio and documents have a thumbnail only on request: their objects are then easier to count. */
    addAsset: (asset: Upload) =>
      send<ListedAsset>('POST', '/assets', { thumbnail: /^(image|video)\//.test(asset.mimeType), ...asset }),
    changeAsset: (id: string, change: Change) => send<ListedAsset>('PATCH', `/assets/${id}`, change),
    removeAsset: (id: string) => send<object>('DELETE', `/assets/${id}`),

    expireTokens: (userId?: string) => send<{ expired: number }>('POST', '/tokens/expire', { userId }),
    endConnections: (userId?: string) => send<{ ended: number }>('POST', '/connections/end', { userId }),
    connections: () => send<{ userId: string; email: string; refreshTokens: number }[]>('GET', '/connections'),
    advanceClock: (seconds: number) => send<{ now: number }>('POST', '/clock', { seconds }),

    faults: () => send<Rule[]>('GET', '/faults'),
    setFaults: (...rules: Rule[]) => send<object>('PUT', '/faults', rules),
    addFault: (rule: Rule) => send<object>('POST', '/faults', rule),
    clearFaults: () => send<object>('DELETE', '/faults'),

    requests: (match: Partial<Entry> = {}) =>
      send<Entry[]>('GET', '/requests').then((entries) =>
        entries.filter((entry) => Object.entries(match).every(([key, value]) => entry[key as keyof Entry] === value)),
      ),
    clearRequests: () => send<object>('DELETE', '/requests'),
  };
}

export const REDIRECT_URI = 'http://127.0.0.1:9/oauth/callback';

/** A library in this process that consents by itself, with its admin API. */
export async function startTestLibrary(options: LibraryOptions = {}): Promise<{ library: Library; admin: Admin }> {
  const library = (await startLibrary({
    redirectUris: [REDIRECT_URI],
    adminPort: 0,
    autoConsent: true,
    ...options,
  })) as Library;
  return { library, admin: adminOf(library.adminUrl!) };
}

export function pkce(): { verifier: string; challenge: string } {
  const verifier = randomBytes(32).toString('base64url');
  return { verifier, challenge: createHash('sha256').update(verifier).digest('base64url') };
}

export function authorizeUrl(library: Library, query: Record<string, string | undefined>): string {
  const parameters = Object.entries({
    response_type: 'code',
    client_id: library.clientId,
    redirect_uri: REDIRECT_URI,
    state: 'the state',
    code_challenge_method: 'S256',
    ...query,
  }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return `${library.appUrl}/oauth/authorize?${new URLSearchParams(parameters)}`;
}

export type TokenAnswer = {
  access_token: string;
  token_type: string;
  expires_in: number;
  refresh_token: string;
  scope: string;
};

export function basic(library: Library): string {
  return `Basic ${Buffer.from(`${library.clientId}:${library.clientSecret}`).toString('base64')}`;
}

export async function postToken(library: Library, fields: Record<string, string>): Promise<Response> {
  return fetch(`${library.apiUrl}/api/oauth/token`, {
    method: 'POST',
    headers: { authorization: basic(library) },
    body: new URLSearchParams(fields),
  });
}

/** Goes through the flow of section 5 without a browser; the library has to consent by itself. */
export async function connect(library: Library, loginHint?: string): Promise<TokenAnswer> {
  const { verifier, challenge } = pkce();
  const url = authorizeUrl(library, { code_challenge: challenge, login_hint: loginHint });
  const redirect = await fetch(url, { redirect: 'manual' });
  const code = new URL(redirect.headers.get('location')!).searchParams.get('code')!;
  const response = await postToken(library, {
    grant_type: 'authorization_code',
    code,
    redirect_uri: REDIRECT_URI,
    code_verifier: verifier,
  });
  if (!response.ok) throw new Error(`token: ${response.status} ${await response.text()}`);
  return (await response.json()) as TokenAnswer;
}
