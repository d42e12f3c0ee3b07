import { setTimeout as wait } from 'node:timers/promises';
import { Agent, request } from 'undici';

export type Answer = {
  /** Method and path, without the query, which contains the signature of a link. */
  request: string;
  status: number;
  header(name: string): string | undefined;
  cookies: string[];
  /** At most as many as requested. */
  bytes: Buffer;
  text: string;
  /** Undefined if the body is not JSON. */
  json: unknown;
};

export type Sending = {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  headers?: Record<string, string>;
  body?: string | URLSearchParams;
  /** The rest of a longer body is not read. */
  limit?: number;
};

export type Send = (url: string, sending?: Sending) => Promise<Answer>;

const RETRIES = 3;
const LONGEST_WAIT = 120;

/** Sends one request and follows no redirect. Waits after a 429, then tries again. */
export function createSend(): { send: Send; close: () => Promise<void> } {
  const dispatcher = new Agent({ headersTimeout: 60_000, bodyTimeout: 60_000, connectTimeout: 15_000 });

  async function once(
    url: string,
    { method = 'GET', headers, body, limit = 8 * 1024 * 1024 }: Sending,
  ): Promise<Answer> {
    const form = body instanceof URLSearchParams;
    const answer = await request(url, {
      method,
      dispatcher,
      headers: {
        'user-agent': 'asset-library-conformance',
        ...(form && { 'content-type': 'application/x-www-form-urlencoded' }),
        ...headers,
      },
      ...(body !== undefined && { body: String(body) }),
    });
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of answer.body) {
      chunks.push(chunk);
      length += chunk.length;
      if (length >= limit) break;
    }
    const bytes = Buffer.concat(chunks).subarray(0, limit);
    const text = bytes.toString();
    const header = (name: string) => [answer.headers[name] ?? []].flat()[0];
    return {
      request: `${method} ${new URL(url).pathname}`,
      status: answer.statusCode,
      header,
      cookies: [answer.headers['set-cookie'] ?? []].flat(),
      bytes,
      text,
      json: parsed(text),
    };
  }

  return {
    async send(url, sending = {}) {
      for (let turn = 1; ; turn++) {
        const answer = await once(url, sending);
        const seconds = Number(answer.header('retry-after') ?? 5);
        if (answer.status !== 429 || turn > RETRIES || !(seconds <= LONGEST_WAIT)) return answer;
        await wait(seconds * 1000);
      }
    },
    close: () => dispatcher.destroy(),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function isSuccess(answer: Answer): boolean {
  return answer.status >= 200 && answer.status < 300;
}

export function isRefusal(answer: Answer): boolean {
  return answer.status >= 400 && answer.status < 500;
}

/** A short description of an answer. */
export function describeAnswer(answer: Answer): string {
  const type = answer.header('content-type') ?? 'no content type';
  const text = answer.text.length > 200 ? `${answer.text.slice(0, 200)}…` : answer.text;
  return `${answer.request} → ${answer.status} (${type}) ${type.includes('html') ? '' : text}`.trim();
}
