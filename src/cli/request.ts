import { z } from 'zod';
import { reasonOf } from '../floor/errors.ts';
import { NotReachable, RefusedByService, UsageError } from './failures.ts';

/** The address of the operator API, and the token for it. */
export interface Service {
  url: string;
  /** ADMIN_TOKEN, an API token, or that of a session. */
  token: string | undefined;
  /** The path of the API (default: `/api`). */
  at?: string;
}

const problem = z.looseObject({
  detail: z.string(),
  code: z.string().optional(),
  errors: z.array(z.looseObject({ detail: z.string() })).optional(),
});

export const notOurs = ({ url }: Service, status: number) =>
  new NotReachable(
    `${url} answered ${status}, but not as asset-mirror does. Set ASSET_MIRROR_URL to the address of asset-mirror, or check the proxy in front of it.`,
  );

const mayBeDone = ' It may do, or have done, what you asked: check that before you repeat it.';

/** The time limit of `call`. */
const patienceMs = 30_000;

function noAnswer({ url }: Service, method: string, error: unknown): NotReachable {
  if ((error as Error).name === 'TimeoutError') {
    const what = `${url} did not answer within ${patienceMs / 1000} seconds.`;
    return new NotReachable(method === 'GET' ? what : `${what}${mayBeDone}`);
  }
  return new NotReachable(
    `No asset-mirror answers at ${url}: ${reasonOf(error)}. Start it with \`asset-mirror start\`, or set ASSET_MIRROR_URL to its address.`,
  );
}

/**
 * Sends a request to the operator API. Without a signal there is no time limit.
 * @throws NotReachable, UsageError for a wrong token, RefusedByService
 */
export async function request(
  service: Service,
  method: string,
  path: string,
  { body, signal, headers }: { body?: unknown; signal?: AbortSignal; headers?: Record<string, string> } = {},
): Promise<Response> {
  const { url, token, at = '/api' } = service;
  let response: Response;
  try {
    response = await fetch(`${url}${at}${path}`, {
      method,
      headers: {
        accept: 'application/json',
        ...headers,
        ...(token && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  } catch (error) {
    throw noAnswer(service, method, error);
  }
  if (response.ok) return response;
  if (response.status === 401) {
    if (token === undefined) {
      throw new UsageError(
        `${url} needs a token. Run \`asset-mirror login\`, or set ASSET_MIRROR_TOKEN or ADMIN_TOKEN (of an embedded mirror: in DATA_DIR/admin-token).`,
      );
    }
    throw new UsageError(
      `${url} does not accept this token. Run \`asset-mirror login\`, or set ASSET_MIRROR_TOKEN to an API token, or ADMIN_TOKEN.`,
    );
  }
  const { data } = problem.safeParse(await response.json().catch(() => undefined));
  if (!data) throw notOurs(service, response.status);
  throw new RefusedByService({ ...data, status: response.status });
}

/** A request that is answered with JSON, within 30 seconds. */
export async function call<T>(service: Service, method: string, path: string, body?: unknown): Promise<T> {
  const signal = AbortSignal.timeout(patienceMs);
  const response = await request(service, method, path, { body, signal });
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (signal.aborted) throw noAnswer(service, method, error);
    throw error instanceof SyntaxError ? notOurs(service, response.status) : cutOff(service, method, error);
  }
}

/** Work that reports its progress in lines of JSON. It stops when this process ends. @throws NotReachable if the service stops */
export async function followWork<T, P>(service: Service, path: string, onProgress: (progress: P) => void): Promise<T> {
  const response = await request(service, 'GET', path);
  for await (const line of linesOf(service, response)) {
    const { progress, result, error } = JSON.parse(line) as {
      progress?: P;
      result?: T;
      error?: { detail: string; stopping: boolean };
    };
    if (progress) onProgress(progress);
    if (error) throw error.stopping ? new NotReachable(error.detail) : new Error(error.detail);
    if (result) return result;
  }
  throw cutOff(service, 'GET');
}

async function* linesOf(service: Service, { body }: Response): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for await (const chunk of body!) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop()!;
      yield* lines;
    }
  } catch (cause) {
    throw cutOff(service, 'GET', cause);
  }
}

const cutOff = ({ url }: Service, method: string, cause?: unknown) =>
  new NotReachable(
    `${url} closed the connection before the answer was complete.${method === 'GET' ? ' Try again.' : mayBeDone}`,
    { cause },
  );

export function addressOf(path: string, query: object): string {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [value].flat().map((one) => [name, String(one)]),
  );
  return given.length > 0 ? `${path}?${new URLSearchParams(given)}` : path;
}
