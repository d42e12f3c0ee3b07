import type { Answered, Asked, Fault } from '../breaking-proxy.ts';
import type { World } from '../world.ts';

/** A service that breaks one rule, and the check that must detect it. */
export type Mutation = {
  check: string;
  breaks: string;
  fault: (world: World) => Fault | Promise<Fault>;
  /** The admin API is broken, which registers apps. */
  isAdmin?: boolean;
};

// biome-ignore lint/suspicious/noExplicitAny: mutations change fields of any answer
export type Json = any;

export const ME = /\/me$/;
export const LIST = /\/companies\/[^/]+\/assets$/;
export const PROJECTS = /\/projects$/;
export const DETAIL = /\/api\/v1\/assets\/[^/]+$/;
export const TRANSCRIPT = /\/transcript$/;
export const MEDIA = /^\/media\//;
export const TOKEN = /\/oauth\/token$/;
export const REVOKE = /\/oauth\/revoke$/;
export const AUTHORIZE = /\/oauth\/authorize$/;

export function json(status: number, body: unknown): Answered {
  return { status, headers: { 'content-type': 'application/json' }, body: Buffer.from(JSON.stringify(body)) };
}

/** Changes the JSON of successful answers at a path. */
export function body(path: RegExp, change: (json: Json, asked: Asked) => Json): () => Fault {
  return () => ({
    answer(answered, asked) {
      if (!path.test(asked.path) || answered.status !== 200) return;
      const json = JSON.parse(answered.body.toString());
      answered.body = Buffer.from(JSON.stringify(change(json, asked)));
    },
  });
}

/** Changes fields of every listed asset. */
export function listed(change: (asset: Json) => object): () => Fault {
  return body(LIST, (page) => ({
    ...page,
    assets: page.assets.map((asset: Json) => ({ ...asset, ...change(asset) })),
  }));
}

/** Changes fields of one asset. */
export function one(change: (asset: Json) => object): () => Fault {
  return body(DETAIL, ({ asset }) => ({ asset: { ...asset, ...change(asset) } }));
}

/** Changes fields of its download. */
export function download(change: (download: Json) => object): () => Fault {
  return one(({ download }) => ({ download: { ...download, ...change(download) } }));
}

/** Changes headers of answers at a path. */
export function headers(path: RegExp, change: object, only: { method?: string; status?: number } = {}): () => Fault {
  return () => ({
    answer(answered, { method, path: at }) {
      const { method: onlyMethod = method, status: onlyStatus = answered.status } = only;
      if (!path.test(at) || method !== onlyMethod || answered.status !== onlyStatus) return;
      Object.assign(answered.headers, change);
    },
  });
}

export function status(path: RegExp, from: number, to: number, content?: unknown): () => Fault {
  return () => ({
    answer(answered, { path: at }) {
      if (!path.test(at) || answered.status !== from) return;
      Object.assign(answered, content === undefined ? { status: to } : json(to, content));
    },
  });
}

export function asked(path: RegExp, change: (asked: Asked) => unknown): () => Fault {
  return () => ({
    ask(asked) {
      if (path.test(asked.path)) change(asked);
    },
  });
}

export function instead(path: RegExp, answer: (asked: Asked) => Answered | undefined): () => Fault {
  return () => ({ instead: (asked) => (path.test(asked.path) ? answer(asked) : undefined) });
}

export function page(path: RegExp, from: RegExp, to: string): () => Fault {
  return () => ({
    answer(answered, asked) {
      if (path.test(asked.path)) answered.body = Buffer.from(answered.body.toString().replace(from, to));
    },
  });
}

/** Changes the redirects of a page. */
export function redirect(change: (url: URL) => unknown): () => Fault {
  return () => ({
    answer(answered, { path }) {
      const { location } = answered.headers;
      if (!AUTHORIZE.test(path) || typeof location !== 'string') return;
      const url = new URL(location);
      change(url);
      answered.headers.location = url.href;
    },
  });
}

const TOKENS = {
  access_token: 'svca_anything',
  token_type: 'Bearer',
  expires_in: 3600,
  refresh_token: 'svcr_anything',
  scope: 'assets:read',
};

/** Answers with tokens where the service should refuse. */
export const forgiving = status(TOKEN, 400, 200, TOKENS);
export const linksForAll = status(MEDIA, 403, 200, {});
