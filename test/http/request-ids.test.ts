import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

describe('the request id', () => {
  const path = '/api/connections/nobody';
  const askAs = (id: string | undefined, at = path, init: RequestInit = {}) =>
    fetch(stage.ground.publicUrl + at, {
      ...init,
      headers: {
        authorization: 'Bearer the-token-of-the-operators',
        ...(id !== undefined && { 'x-request-id': id }),
        ...init.headers,
      },
    });
  const linesOf = (id: string | null) => stage.mirror.lines.filter(({ requestId }) => requestId === id);
  const answered = (id: string | null) =>
    until('its line', () => linesOf(id).find(({ msg }) => msg === 'request answered'));

  test('the request id of the client is in the answer, the problem and the log', async () => {
    const answer = await askAs('proxy/7f3a:1');
    expect(answer.headers.get('x-request-id')).toBe('proxy/7f3a:1');
    expect(await answer.json()).toMatchObject({ code: 'connection_not_found', requestId: 'proxy/7f3a:1' });
    expect(await answered('proxy/7f3a:1')).toMatchObject({
      level: 'debug',
      method: 'GET',
      route: '/api/connections/:id',
      status: 404,
      operator: 'ADMIN_TOKEN',
      ms: expect.any(Number),
    });
  });

  test.each(['', 'two words', 'a'.repeat(129), '<script>', 'svca_abcdefghijklmnop', '{"a":1}', 'a?token=b'])(
    'the invalid request id %j is replaced by a new one',
    async (id) => {
      const given = (await askAs(id)).headers.get('x-request-id');
      expect(given).toMatch(/^[\da-f]{8}-[\da-f-]{27}$/);
      expect((await askAs(undefined)).headers.get('x-request-id')).not.toBe(given);
    },
  );

  test("the request id is in the answer of the event stream, and in the event of an operator's action", async () => {
    const stream = await askAs('follower', '/api/events', { headers: { accept: 'text/event-stream' } });
    expect(stream.headers.get('x-request-id')).toBe('follower');
    await stream.body!.cancel();
    const body = JSON.stringify({ connectionId: 'nobody' });
    const headers = { 'content-type': 'application/json' };
    await askAs('deed-1', '/api/connect-links', { method: 'POST', headers, body });
    const [deed] = (
      (await (
        await askAs(undefined, '/api/events?kind=operator.createConnectLink&limit=1', {
          headers: { accept: 'application/json' },
        })
      ).json()) as { events: { data: object }[] }
    ).events;
    expect(deed!.data).toMatchObject({ requestId: 'deed-1', code: 'connection_not_found' });
    expect(await answered('deed-1')).toMatchObject({ level: 'info', route: '/api/connect-links', status: 404 });
  });

  test('the request id is in each log line of the request, and no line has its address', async () => {
    // The body comes after the headers, in a packet of its own.
    const body = Readable.from(['token=wrong', '&to=/?secret=1']);
    const headers = { origin: stage.ground.publicUrl, 'content-type': 'application/x-www-form-urlencoded' };
    await askAs('form-1', '/sign-in?to=/secret', { method: 'POST', headers, body, duplex: 'half' } as never);
    expect(await answered('form-1')).toMatchObject({ route: '/sign-in', status: 401 });
    expect(linesOf('form-1').map(({ msg }) => msg)).toEqual(['sign-in refused', 'request answered']);
    await askAs('lost-1', '/secret?link=1');
    expect(await answered('lost-1')).toMatchObject({ route: null, status: 404 });
    expect(JSON.stringify([...linesOf('form-1'), ...linesOf('lost-1')])).not.toContain('secret');
  });
});
