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

/** A received request, without secrets: no token, and no query, which contains the signature of a link. */
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
  /** 0 until there is an answer, and if the connection was closed before one. */
  status: number;
  bytes: number;
};

const CAPACITY = 100_000;

/** The latest requests, for the admin API. */
export class RequestLog {
  readonly #isEnabled: boolean;
  #entries: Entry[] = [];

  constructor(isEnabled: boolean) {
    this.#isEnabled = isEnabled;
  }

  add(request: FastifyRequest, endpoint: Endpoint | null, at: number): Entry {
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
    if (this.#isEnabled) {
      if (this.#entries.length >= CAPACITY) this.#entries = this.#entries.slice(CAPACITY / 2);
      this.#entries.push(entry);
    }
    return entry;
  }

  all(): Entry[] {
    return this.#entries;
  }

  clear(): void {
    this.#entries = [];
  }
}
