import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { grounds, startMirror } from '../support/mirror.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

describe.each(grounds())('the queue dashboard, with $name', ({ redis }) => {
  let stage: Stage;
  let connectionId: string;
  let companyId: string;
  let cookie: string;
  const get = (path: string, headers: Record<string, string> = {}) =>
    fetch(stage.ground.publicUrl + path, { redirect: 'manual', headers: { cookie, ...headers } });

  beforeAll(async () => {
    stage = await newStage({ redis });
    ({ connectionId, companyId } = await stage.company());
    const origin = stage.ground.publicUrl;
    const answer = await fetch(`${origin}/sign-in`, {
      method: 'POST',
      redirect: 'manual',
      headers: { origin },
      body: new URLSearchParams({ token: 'the-token-of-the-operators' }),
    });
    cookie = answer.headers.getSetCookie()[0]!.split(';')[0]!;
    const { queues } = stage.mirror.service.context;
    await queues.addAssets([{ id: 'asset-1', state: 'pending', lease: 0 }]);
    await queues.addSyncs([connectionId]);
  });
  afterAll(async () => {
    await stage?.close();
  });

  test('the queue dashboard shows both queues, and jobs with names and ids only', async () => {
    const { queues } = (await (await get('/queues/api/queues?activeQueue=assets&page=1')).json()) as {
      queues: {
        name: string;
        readOnlyMode: boolean;
        counts: Record<string, number>;
        jobs: Record<string, unknown>[];
      }[];
    };
    expect(queues.map(({ name, readOnlyMode }) => [name, readOnlyMode]).sort()).toEqual([
      ['assets', true],
      ['syncs', true],
    ]);
    const { jobs, counts } = queues.find(({ name }) => name === 'assets')!;
    expect(counts.waiting).toBe(1);
    expect(jobs[0]).toMatchObject({ name: 'mirror-asset asset-1', data: { assetId: 'asset-1' } });
    for (const { readOnlyMode } of queues) expect(readOnlyMode).toBe(true);
  });

  test('the queue dashboard loads scripts from this server only', async () => {
    const page = await get('/queues/');
    expect(page.headers.get('content-security-policy')).toMatch(
      /^default-src 'self'; style-src 'self' 'unsafe-inline'/,
    );
    const html = await page.text();
    expect(html).not.toMatch(/(src|href)="(https?:)?\/\//);
    const script = /src="(static\/js\/main[^"]*)"/.exec(html)![1];
    expect((await get(`/queues/${script}`)).headers.get('content-type')).toMatch(/javascript/);
  });

  test('the queue dashboard has the name and icon of asset-mirror, and a link to the dashboard', async () => {
    const html = await (await get('/queues/')).text();
    expect(html).toContain('<title>asset-mirror queues</title>');
    expect(html).toContain('<a class="back" href="/">');
    const [, icon] = /rel="icon"[^>]*href="([^"]+)"/.exec(html)!;
    expect((await get(icon!)).headers.get('content-type')).toContain('image/svg+xml');
  });

  test('the queue dashboard is read-only', async () => {
    const { queues } = stage.mirror.service.context;
    for (const path of ['assets/pause', 'assets/empty', 'assets/obliterate', 'pause']) {
      const answer = await fetch(`${stage.ground.publicUrl}/queues/api/queues/${path}`, {
        method: 'PUT',
        headers: { cookie, origin: stage.ground.publicUrl, accept: 'application/json' },
      });
      expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([405, 'read_only']);
    }
    expect(await queues.assets.getWaitingCount()).toBe(1);
  });

  test('an unknown page of the queue dashboard is answered with the request id', async () => {
    const answer = await get('/queues/nothing');
    const body = (await answer.json()) as { code: string; requestId: string };
    expect([answer.status, body.code]).toEqual([404, 'not_found']);
    expect(body.requestId).toBe(answer.headers.get('x-request-id'));
  });

  test('the queue dashboard shows each attempt at an asset as a job, failed with the reason or completed', {
    tags: 'slow',
  }, async () => {
    const [good, bad] = await stage.upload(companyId, 2);
    await stage.admin.addFault({ endpoint: 'media', assetId: good!, times: 1, status: 500 });
    await stage.admin.addFault({ endpoint: 'asset', assetId: bad!, body: { asset: 'nonsense' } });
    const worker = await startMirror(stage.ground, stage.library, 'worker');
    try {
      const jobs = await until('three attempts to be over', async () => {
        const answer = await get('/queues/api/queues?activeQueue=assets&page=1&jobsPerPage=50');
        const { queues } = (await answer.json()) as { queues: { name: string; jobs: Record<string, unknown>[] }[] };
        const found = queues
          .find(({ name }) => name === 'assets')!
          .jobs.filter(({ name, finishedOn }) => finishedOn && !`${name}`.endsWith(' asset-1'))
          // A job that counted as lost on a busy machine was queued twice.
          .filter(({ returnValue }) => (returnValue as { outcome?: string } | null)?.outcome !== 'nothing_to_do');
        return found.length === 3 ? found : undefined;
      });
      const isAbout = (assetId: string) => (job: Record<string, unknown>) => job.name === `mirror-asset ${assetId}`;
      expect(jobs.filter(isAbout(good!))).toMatchObject([
        { isFailed: false, returnValue: { outcome: 'mirrored', attempt: 2 } },
        { isFailed: true, failedReason: expect.stringMatching(/^attempt 1: .* answered 500; next try in \S.*$/) },
      ]);
      expect(jobs.filter(isAbout(bad!))).toMatchObject([
        { isFailed: true, failedReason: expect.stringMatching(/^attempt 1: .* breaks the API schema(?!.*next try)/) },
      ]);
    } finally {
      await worker.stop();
    }
  });

  test('the queue dashboard needs a sign-in', async () => {
    const page = await get('/queues/', { cookie: '' });
    expect([page.status, page.headers.get('location')]).toEqual([303, '/sign-in?to=%2Fqueues%2F']);
    const data = await get('/queues/api/queues', { cookie: '', accept: 'application/json, text/plain, */*' });
    expect([data.status, ((await data.json()) as { code: string }).code]).toEqual([401, 'unauthorized']);
  });
});
