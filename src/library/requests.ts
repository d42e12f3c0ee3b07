import type { FastifyRequest } from 'fastify';

export const ENDPOINTS = [
  'token',
  'revoke',
  'me',
  'projects',
  'assets',
  'asset',
  'transcript',
  'media',
  'mp4',
  'thumbnail',
  'authorize',
] as const;

export type Endpoint = (typeof ENDPOINTS)[number];

/** One request as it is remembered. It holds no query, since a link's query is its secret, and no token. */
export type Entry = {
  at: number;
  endpoint: Endpoint | null;
  method: string;
  path: string;
  assetId?: string;
  companyId?: string;
  referer: string | null;
  hasAuthorization: boolean;
  range: string | null;
  ifRange: string | null;
  /** 0 while there is no answer, and for good when the connection was dropped before one. */
  status: number;
  bytes: number;
};

export type RequestLog = {
  begin(request: FastifyRequest, endpoint: Endpoint | null, at: number): Entry;
  all(): Entry[];
  clear(): void;
};

const REMEMBERED = 100_000;

export function createRequestLog(isKept: boolean): RequestLog {
  let entries: Entry[] = [];
  return {
    begin(request, endpoint, at) {
      const { assetId, companyId } = request.params as { assetId?: string; companyId?: string };
      const entry: Entry = {
        at,
        endpoint,
        method: request.method,
        path: request.url.split('?')[0]!,
        ...(assetId !== undefined && { assetId }),
        ...(companyId !== undefined && { companyId }),
        referer: request.headers.referer ?? null,
        hasAuthorization: request.headers.authorization !== undefined,
        range: request.headers.range ?? null,
        ifRange: (request.headers['if-range'] as string | undefined) ?? null,
        status: 0,
        bytes: 0,
      };
      if (isKept) {
        if (entries.length >= REMEMBERED) entries = entries.slice(REMEMBERED / 2);
        entries.push(entry);
      }
      return entry;
    },
    all: () => entries,
    clear: () => {
      entries = [];
    },
  };
}
