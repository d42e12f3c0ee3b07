import { spawn } from 'node:child_process';
import { expect } from 'vitest';
import { newBrowser } from './browser.ts';
import type { Library } from './library.ts';
import type { Ground } from './mirror.ts';
import type { newWire } from './wire.ts';

type Wire = Awaited<ReturnType<typeof newWire>>;

/** Errors of a library that reveals secrets. The values are fake, but look real. */
export const canaries = {
  access: 'svca_canaryaccess0123456789',
  refresh: 'svcr_canaryrefresh0123456789',
  signature: 'canarysignature0123456789',
  basic: 'Y2FuYXJ5OmNhbmFyeQ==',
};
export const link = `https://media.example.com/a?expires=1&signature=${canaries.signature}`;
export const wrong = {
  AWS_SECRET_ACCESS_KEY: 'wrongsecretkey0123456789',
  LIBRARY_CLIENT_SECRET: 'svcs_wrongsecret0123456789',
};
export const indiscreet = {
  error: `no ${canaries.access} at ${link}`,
  message: `${canaries.refresh}, Basic ${canaries.basic}`,
};

/** Connects like a browser, and keeps the secrets that only a browser may know. */
export async function connect(
  api: (method: string, path: string, body?: unknown) => Promise<{ url: string }>,
  wire: Wire,
) {
  const browser = newBrowser();
  let { url } = await api('POST', '/connect-links', {});
  for (let response = await browser.get(url); ; response = await browser.get(url)) {
    wire.keep(url);
    for (const jar of browser.cookies.values()) for (const value of jar.values()) wire.secrets.add(value);
    const location = response.headers.get('location');
    if (location === null) {
      expect(response.status, await response.text()).toBe(200);
      return;
    }
    url = new URL(location, url).href;
  }
}

/** The content of an event stream from the beginning. */
export async function listen(ground: Ground) {
  const ended = new AbortController();
  const { body } = await fetch(`${ground.publicUrl}/api/events`, {
    headers: { authorization: `Bearer ${ground.environment.ADMIN_TOKEN}` },
    signal: ended.signal,
  });
  let received = '';
  void (async () => {
    for await (const chunk of body!) received += Buffer.from(chunk);
  })().catch(() => {});
  return { received: () => received, close: () => ended.abort() };
}

/** The queue dashboard of a signed-in operator: all jobs in all states, with their errors. */
export async function readQueues(
  ground: Ground,
  written: Map<string, string>,
  secrets: Map<string, string>,
): Promise<void> {
  const origin = ground.publicUrl;
  const signedIn = await fetch(`${origin}/sign-in`, {
    method: 'POST',
    redirect: 'manual',
    headers: { origin },
    body: new URLSearchParams({ token: ground.environment.ADMIN_TOKEN! }),
  });
  const cookie = signedIn.headers.getSetCookie()[0]!.split(';')[0]!;
  secrets.set(cookie.split(/=(.*)/s)[1]!, "an operator's session");
  const read = async (path: string) => {
    const text = await (await fetch(`${origin}/queues/api/queues${path}`, { headers: { cookie } })).text();
    written.set(`/queues${path}`, text);
    return JSON.parse(text);
  };
  for (const name of ['syncs', 'assets']) {
    for (const status of ['latest', 'completed', 'failed', 'delayed']) {
      const { queues } = await read(`?activeQueue=${name}&status=${status}&page=1&jobsPerPage=100`);
      const { jobs } = queues.find((queue: { name: string }) => queue.name === name);
      for (const { id } of jobs) await read(`/${name}/${encodeURIComponent(id)}`);
    }
  }
}

/** The output of starts with settings that do not work. */
export async function attemptsInVain(library: Library, ground: Ground, wire: Wire): Promise<[string, string][]> {
  const environment = {
    LIBRARY_API_URL: wire.url,
    LIBRARY_APP_URL: library.appUrl,
    LIBRARY_CLIENT_ID: library.clientId,
    LIBRARY_CLIENT_SECRET: library.clientSecret,
    ...ground.environment,
  };
  const away = ground.environment.DATABASE_URL!.replace(/:\d+\//, ':1/');
  const odd = {
    ENCRYPTION_KEYS: canaries.access,
    LIBRARY_API_URL: link,
    REDIS_URL: `http://u:${canaries.signature}@h`,
  };
  return Promise.all([
    output(['doctor'], { ...environment, ...wrong }).then((text): [string, string] => ['doctor', text]),
    output(['start'], { ...environment, DATABASE_URL: away, PORT: '0' }).then((text) => ['no database', text]),
    output(['start'], { ...environment, ...odd }).then((text) => ['odd settings', text]),
  ] as Promise<[string, string]>[]);
}

/** All that a command prints. */
async function output(args: string[], environment: Record<string, string>): Promise<string> {
  const child = spawn(process.execPath, ['src/main.ts', ...args], {
    env: { PATH: process.env.PATH, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk));
  await new Promise((resolve) => child.once('close', resolve));
  return text;
}
