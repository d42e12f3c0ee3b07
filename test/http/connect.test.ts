import { createHash } from 'node:crypto';
import { createServer, request } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { signConnectLink } from '../../src/oauth/authorize.ts';
import { newBrowser } from '../support/browser.ts';
import { startTestLibrary } from '../support/library.ts';
import { newGround, startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { connecting, text } from './connecting.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const { linkFor, somebody, consented } = connecting(() => stage);

describe('a connect link', () => {
  test('a connect link redirects to the consent page with PKCE, a state and the exact redirect URI', async () => {
    const browser = newBrowser();
    const [first, second] = [await browser.get(await linkFor()), await newBrowser().get(await linkFor())];
    expect(first.status).toBe(302);
    const at = new URL(first.headers.get('location')!);
    expect(at.origin + at.pathname).toBe(`${stage.library.appUrl}/oauth/authorize`);
    const query = Object.fromEntries(at.searchParams);
    expect(query).toEqual({
      response_type: 'code',
      client_id: stage.library.clientId,
      redirect_uri: `${stage.ground.publicUrl}/oauth/callback`,
      state: expect.stringMatching(/^[\w-]{32,}$/),
      code_challenge: expect.stringMatching(/^[\w-]{43}$/),
      code_challenge_method: 'S256',
    });
    const other = new URL(second.headers.get('location')!).searchParams;
    for (const name of ['state', 'code_challenge']) expect(other.get(name)).not.toBe(query[name]);

    // The verifier is not readable anywhere.
    const [cookie] = first.headers.getSetCookie();
    expect(cookie).toMatch(
      /^asset_mirror_connect=v1\.[\w.-]+; Max-Age=3600; Path=\/oauth\/callback; HttpOnly; SameSite=Lax$/,
    );
    expect(cookie).not.toContain(query.state);
    expect(Object.fromEntries(first.headers)).toMatchObject({
      'referrer-policy': 'no-referrer',
      'cache-control': 'no-store',
    });
    const challenge = (verifier: string) => createHash('sha256').update(verifier).digest('base64url');
    for (const part of cookie!.split(/[=.;]/)) expect(challenge(part)).not.toBe(query.code_challenge);
  });

  test('a connect link works more than once, for different users', async () => {
    const link = await linkFor();
    for (const userId of [await somebody(), await somebody()]) {
      const { browser, back } = await consented(userId, link);
      expect(await text(await browser.get(back))).toMatchObject({
        status: 200,
        text: expect.stringContaining('You are connected'),
      });
    }
  });

  test.each([
    ['no link', '/connect', 400],
    ['two links', '/connect?link=a&link=b', 400],
    ['an unsigned link', '/connect?link=abc.def', 400],
    ['a link with NUL', '/connect?link=%00.%00', 400],
  ])('/connect with %s is refused', async (_, path, status) => {
    const page = await newBrowser().get(stage.ground.publicUrl + path);
    expect(page.headers.getSetCookie()).toEqual([]);
    expect(await text(page)).toMatchObject({ status, text: expect.stringContaining('This link does not work') });
  });

  test('a connect link that was altered is refused', async () => {
    const link = new URL(await linkFor());
    const given = link.searchParams.get('link')!;
    const [body, signature] = given.split('.') as [string, string];
    const forged = Buffer.from(JSON.stringify({ c: 'another', e: Date.now() + 9e9 })).toString('base64url');
    for (const changed of [`${forged}.${signature}`, `${body}.${signature.slice(0, -4)}AAAA`, body, `${given}.x`]) {
      link.searchParams.set('link', changed);
      expect((await newBrowser().get(link.href)).status).toBe(400);
    }
  });

  test('an expired connect link shows a page that says so', async () => {
    const { sealer } = stage.mirror.service.context;
    const link = signConnectLink(sealer, { madeAt: new Date(0), expiresAt: new Date(Date.now() - 1) });
    const page = await text(await newBrowser().get(`${stage.ground.publicUrl}/connect?link=${link}`));
    expect(page).toMatchObject({ status: 410, text: expect.stringContaining('This link has expired') });
  });
});

test('pages of the connect flow allow no scripts, forms or frames', async () => {
  const pages = ['/connect', '/oauth/callback'];
  for (const path of pages) {
    const { headers } = await newBrowser().get(stage.ground.publicUrl + path);
    expect(Object.fromEntries(headers), path).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': expect.stringMatching(
        /default-src 'none'.*base-uri 'none'.*form-action 'none'.*frame-ancestors 'none'/,
      ),
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
    });
  }
});

/** A web process at another address, with a library that has this address registered. */
async function at(publicUrl: (port: number) => string) {
  const port = await freePort();
  const ground = await newGround({ port, environment: { PUBLIC_URL: publicUrl(port) } });
  const { library, admin } = await startTestLibrary({ redirectUris: [`${publicUrl(port)}/oauth/callback`] });
  const mirror = await startMirror(ground, library, 'web');
  return {
    port,
    library,
    admin,
    mirror,
    link: async () => (await mirror.service.operations.createConnectLink({})).url,
    async close() {
      await mirror.stop();
      await library.close();
      await ground.clear();
    },
  };
}

test('the cookie of the connect flow is secure on https', { tags: 'slow' }, async () => {
  const web = await at(() => 'https://mirror.example.com');
  try {
    const link = await web.link();
    expect(link).toMatch(/^https:\/\/mirror\.example\.com\/connect\?link=/);
    const answer = await newBrowser().get(link.replace('https://mirror.example.com', `http://127.0.0.1:${web.port}`));
    expect(answer.headers.getSetCookie()[0]).toMatch(/; HttpOnly; Secure; SameSite=Lax$/);
    expect(new URL(answer.headers.get('location')!).searchParams.get('redirect_uri')).toBe(
      'https://mirror.example.com/oauth/callback',
    );
  } finally {
    await web.close();
  }
});

describe('PUBLIC_URL with a path', () => {
  test.each(['keeps it', 'takes it off'])('a PUBLIC_URL with a path works behind a proxy that %s', async (what) => {
    const proxyPort = await freePort();
    const web = await at(() => `http://127.0.0.1:${proxyPort}/tools/mirror`);
    const proxy = createServer((incoming, outgoing) => {
      const path = what === 'keeps it' ? incoming.url : incoming.url!.replace('/tools/mirror', '');
      const { method, headers } = incoming;
      request({ port: web.port, path, method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(outgoing);
      }).end();
    }).listen(proxyPort, '127.0.0.1');
    try {
      const browser = newBrowser();
      const link = await web.link();
      expect(link).toMatch(/\/tools\/mirror\/connect\?link=/);
      expect((await browser.get(link)).headers.getSetCookie()[0]).toContain('Path=/tools/mirror/oauth/callback;');
      expect(await browser.visit(link)).toMatchObject({
        status: 200,
        text: expect.stringContaining('You are connected'),
      });
      expect((await fetch(`http://127.0.0.1:${proxyPort}/tools/mirror/healthz`)).status).toBe(200);
    } finally {
      proxy.closeAllConnections();
      proxy.close();
      await web.close();
    }
  });
});
