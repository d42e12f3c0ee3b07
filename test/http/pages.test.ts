import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startMirror } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';

/** The pages of operators, below the path of a PUBLIC_URL, whether the proxy in front removes the path or not. */
describe('pages below a path', () => {
  let stage: Stage;
  let mirror: Awaited<ReturnType<typeof startMirror>>;
  let cookie: string;
  let origin: string;

  beforeAll(async () => {
    stage = await newStage();
    await stage.mirror.stop();
    origin = stage.ground.publicUrl;
    const environment = { ...stage.ground.environment, PUBLIC_URL: `${origin}/mirror` };
    mirror = await startMirror({ ...stage.ground, environment }, stage.library, 'web');
    stage.mirror.stop = () => mirror.stop();
    const answer = await fetch(`${origin}/mirror/sign-in`, {
      method: 'POST',
      redirect: 'manual',
      headers: { origin },
      body: new URLSearchParams({ token: 'the-token-of-the-operators' }),
    });
    cookie = answer.headers.getSetCookie()[0]!.split(';')[0]!;
  });
  afterAll(async () => {
    await stage?.close();
  });
  const get = (path: string, headers: Record<string, string> = {}) =>
    fetch(new URL(path, origin), { redirect: 'manual', headers: { cookie, ...headers } });

  test.each(['/mirror/', '/mirror', '/mirror?a=1', '/'])(
    'the dashboard at %s loads all its files, and allows no others',
    async (path) => {
      const page = await get(path);
      expect(page.headers.get('content-security-policy')).toBe(
        "default-src 'self'; img-src 'self'; media-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
      );
      const html = await page.text();
      expect(html).not.toMatch(/<style|<script>| style=| on[a-z]+=/);
      const named = [...html.matchAll(/(?:href|src)="(\/[^"]*\.(?:js|css|svg))"/g)].map(([, file]) => file!);
      expect(named).toContain('/mirror/dashboard/app.js');
      for (const file of named) expect([file, (await get(file)).status]).toEqual([file, 200]);
    },
  );

  test('the queue dashboard at /mirror/queues/ loads its files below that path', async () => {
    const html = await (await get('/mirror/queues/')).text();
    expect(html).toContain('<base href="/mirror/queues/"');
    const script = /src="(static\/js\/main[^"]*)"/.exec(html)![1];
    expect((await get(`/mirror/queues/${script}`)).status).toBe(200);
    expect((await get('/mirror/queues/api/queues')).status).toBe(200);
  });

  test('a page needs no session if the request has the operator token, and refuses another token', async () => {
    for (const path of ['/', '/queues/']) {
      const of = async (token: string) =>
        (await get(path, { cookie: '', authorization: `Bearer ${token}`, accept: 'text/html' })).status;
      expect([await of('the-token-of-the-operators'), await of('another')]).toEqual([200, 303]);
    }
  });

  test('a script is cached, and revalidated by its ETag', async () => {
    const first = await get('/mirror/dashboard/app.js');
    expect(first.headers.get('cache-control')).toBe('private, no-cache');
    expect(first.headers.get('content-type')).toMatch(/javascript/);
    const again = await get('/mirror/dashboard/app.js', {
      'if-none-match': first.headers.get('etag')!,
      'cache-control': 'max-age=0',
    });
    expect(again.status).toBe(304);
  });

  test.each([
    '/dashboard/tsconfig.json',
    '/dashboard/types.d.ts',
    '/dashboard/../dashboard.ts',
    '/dashboard/..%2fserver.ts',
    '/dashboard/vendor/lit-html/package.json',
    '/dashboard/vendor/uplot/..%2f..%2f..%2fpackage.json',
  ])('%s is not served as a file of the dashboard', async (path) => {
    expect((await get(`/mirror${path}`)).status).toBe(404);
  });

  test('files of the dashboard need a sign-in', async () => {
    expect((await get('/mirror/dashboard/app.js', { cookie: '' })).status).toBe(303);
  });
});
