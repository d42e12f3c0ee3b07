import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A minimal source, so that the cost of its clients can be measured: files behind plain HTTP with an index
 * page, as rclone lists them, and the same files as assets of an API after the specification. The access token `svca_N`
 * belongs to user N, who reads company N with `files` assets; the first is the newest, each `stepMs` older than the one before.
 * `shared`: everyone reads company 1.
 */
export interface NullSource {
  files: number;
  bytes: number;
  /** Upload date of the newest asset, epoch milliseconds. */
  newest: number;
  stepMs: number;
  shared?: boolean;
  /** Files; without them it speaks plain HTTP. */
  tls?: { cert: string; key: string } | undefined;
  /** The address in its links, if a proxy is in front. */
  origin?: string;
  /** API requests per second; more, beyond a reserve of one second, get 429 and `Retry-After: 1`. */
  perSecond?: number | undefined;
  /** The source works on this many API requests at once, each for `workMs`. Others wait, so the latency grows with the load. */
  workers?: number;
  workMs?: number;
}

/** The API requests so far: all, and in each second since the first, as many as were answered and refused. */
export interface Counted {
  requests: number;
  answered: number[];
  refused: number[];
}

const options = JSON.parse(process.argv[2]!) as NullSource;
const {
  files,
  bytes,
  newest,
  stepMs,
  shared,
  tls,
  perSecond,
  workers = Number.POSITIVE_INFINITY,
  workMs = 0,
} = options;
const block = Buffer.alloc(Math.min(bytes, 1 << 20), 'asset-mirror ');
const names = Array.from({ length: files }, (_, i) => `<a href="file-${i}.bin">file-${i}.bin</a>`);
const index = `<html><body>${names.join('\n')}</body></html>`;
const modified = new Date(Date.UTC(2024, 0, 1)).toUTCString();
const etag = `"${bytes}"`;
let { origin = '' } = options;
const counted: Counted = { requests: 0, answered: [], refused: [] };

function count(what: 'answered' | 'refused'): void {
  began ??= performance.now();
  const second = Math.floor((performance.now() - began) / 1000);
  counted[what][second] = (counted[what][second] ?? 0) + 1;
}
let began: number | undefined;

/** The token bucket of the request limit: it is full at first. */
let tokens = perSecond ?? Number.POSITIVE_INFINITY;
let filledAt = performance.now();
function takeToken(): boolean {
  if (perSecond === undefined) return true;
  const now = performance.now();
  tokens = Math.min(perSecond, tokens + ((now - filledAt) / 1000) * perSecond);
  filledAt = now;
  if (tokens < 1) return false;
  tokens--;
  return true;
}

let busy = 0;
const waiting: (() => void)[] = [];
/** Keeps one worker busy for `workMs`, after those who came first. */
async function work(): Promise<void> {
  if (workMs === 0) return;
  if (busy === workers) await new Promise<void>((resolve) => waiting.push(resolve));
  else busy++;
  await sleep(workMs);
  const next = waiting.shift();
  if (next) next();
  else busy--;
}

const listener: RequestListener = (request, response) => {
  counted.requests++;
  if (!request.url!.startsWith('/api/')) return void answer(request, response);
  if (!takeToken()) {
    count('refused');
    response.setHeader('retry-after', '1');
    return json(response, { error: 'too many requests' }, 429);
  }
  count('answered');
  void work().then(() => answer(request, response));
};

const answer: RequestListener = (request, response) => {
  const { pathname, searchParams } = new URL(request.url!, 'http://source');
  const [, top, one, rest] = pathname.split('/');
  if (top === 'files') return one ? file(request.headers.range, request.method!, response) : page(response);
  const user = /^Bearer svca_(\d+)$/.exec(request.headers.authorization ?? '')?.[1];
  if (user === undefined) return json(response, { error: 'unauthorized' }, 401);
  const company = shared ? '1' : user;
  if (pathname === '/api/v1/me') {
    const companies = [{ id: `company-${company}`, name: `Company ${company}` }];
    return json(response, {
      user: { id: `user-${user}`, name: `User ${user}`, email: `${user}@example.com` },
      companies,
    });
  }
  if (rest === undefined) return json(response, { error: 'not found' }, 404);
  const asset = /^\/api\/v1\/assets\/asset-\d+-(\d+)$/.exec(pathname)?.[1];
  if (asset !== undefined) {
    const filename = `file-${asset}.bin`;
    const download = { url: `${origin}/files/${filename}`, mp4Url: null, filename, expiresAt: Date.now() / 1000 + 900 };
    return json(response, { asset: { ...listed(company, Number(asset)), download } });
  }
  const since = searchParams.get('since');
  const first = Number(searchParams.get('cursor') ?? 0);
  const behind = since === null ? files : Math.ceil((newest - Number(since)) / stepMs);
  const end = Math.max(0, Math.min(files, behind));
  const last = Math.min(end, first + Number(searchParams.get('limit') ?? 50));
  const assets = Array.from({ length: Math.max(0, last - first) }, (_, i) => listed(company, first + i));
  return json(response, { assets, nextCursor: last < end ? String(last) : null });
};
const server = tls
  ? createTlsServer({ cert: readFileSync(tls.cert), key: readFileSync(tls.key) }, listener)
  : createServer(listener);
server.listen(0, '127.0.0.1', () => {
  const own = `http${tls ? 's' : ''}://127.0.0.1:${(server.address() as AddressInfo).port}`;
  origin ||= own;
  process.send!(own);
});
server.keepAliveTimeout = 60_000;
process.on('message', () => process.send!(counted));
process.on('disconnect', () => process.exit());

function listed(company: string, i: number) {
  return {
    id: `asset-${company}-${i}`,
    name: `file-${i}.bin`,
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    size: bytes,
    projectId: `project-${i % 40}`,
    projectName: `Project ${i % 40}`,
    tags: ['one', 'two'],
    uploadDate: newest - i * stepMs,
    status: 'ready',
    hasTranscript: false,
  };
}

function json(response: ServerResponse, body: object, status = 200): void {
  const text = JSON.stringify(body);
  response
    .writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) })
    .end(text);
}

function page(response: ServerResponse): void {
  response.setHeader('content-type', 'text/html').end(index);
}

function file(range: string | undefined, method: string, response: ServerResponse): void {
  const [, from = '0', to = String(bytes - 1)] = /^bytes=(\d+)-(\d+)?$/.exec(range ?? '') ?? [];
  const [first, last] = [Number(from), Math.min(Number(to), bytes - 1)];
  response.statusCode = range ? 206 : 200;
  if (range) response.setHeader('content-range', `bytes ${first}-${last}/${bytes}`);
  response.setHeader('content-length', last - first + 1);
  response.setHeader('last-modified', modified);
  response.setHeader('accept-ranges', 'bytes');
  response.setHeader('etag', etag);
  response.setHeader('content-type', 'application/octet-stream');
  if (method === 'HEAD') return void response.end();
  let left = last - first + 1;
  const more = (): void => {
    while (left > 0) {
      const piece = left >= block.length ? block : block.subarray(0, left);
      left -= piece.length;
      if (!response.write(piece)) return void response.once('drain', more);
    }
    response.end();
  };
  more();
}
