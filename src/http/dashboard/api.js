/** @import { WrongField } from './refusals.js' */
const { base = '' } = document.body.dataset;

/** A refused request, with the problem of the API. */
class Refusal extends Error {
  /** @param {number} status @param {string} code @param {string} detail @param {WrongField[]} [errors] */
  constructor(status, code, detail, errors) {
    super(detail);
    this.status = status;
    this.code = code;
    this.errors = errors;
  }
}

/** While this page signs out, it opens no sign-in form: the sign-out may lead to the OpenID provider. */
let isSigningOut = false;
document.addEventListener('submit', ({ target }) => {
  isSigningOut ||= target instanceof HTMLFormElement && new URL(target.action).pathname === `${base}/sign-out`;
});

/** @param {string} path below /api */
export const addressOf = (path) => `${base}/api${path}`;

/** @param {Record<string, string | number | undefined | null>} query empty values are omitted */
export const queryOf = (query) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== '');
  return given.length === 0 ? '' : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
};

/**
 * Sends a request to the API. Without a session it opens the sign-in form, which leads back.
 * @template T
 * @param {string} path
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal }} [options]
 * @returns {Promise<T>}
 */
export async function api(path, options = {}) {
  const response = await request(path, options);
  return response.json();
}

/**
 * The lines of JSON of an answer, as they arrive.
 * @template T
 * @param {string} path
 * @param {{ signal?: AbortSignal }} [options]
 * @returns {AsyncGenerator<T>}
 */
export async function* linesOf(path, options = {}) {
  const { body } = await request(path, options);
  if (!body) return;
  let rest = '';
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}

/** @param {string} path @param {{ method?: string, body?: unknown, signal?: AbortSignal }} options */
async function request(path, { method = 'GET', body, signal }) {
  const response = await fetch(addressOf(path), {
    method,
    headers: { accept: 'application/json', ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  }).catch((error) => {
    if (signal?.aborted) throw error;
    throw new Refusal(0, 'unreachable', 'asset-mirror does not answer. Is it running, and does the network work?');
  });
  if (response.ok) return response;
  if (response.status === 401 && !isSigningOut) {
    location.assign(`${base}/sign-in?to=${encodeURIComponent(`${base}/${location.hash}`)}`);
  }
  const {
    code = 'unknown',
    detail = `asset-mirror answered with ${response.status}.`,
    errors,
  } = await response.json().catch(() => ({}));
  throw new Refusal(response.status, code, detail, errors);
}
