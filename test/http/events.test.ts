import { once } from 'node:events';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { EventStreams } from '../../src/http/event-stream.ts';
import { startMirror } from '../support/mirror.ts';
import { freePort } from '../support/ports.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
let connectionId: string;
beforeAll(async () => {
  stage = await newStage();
  ({ connectionId } = await stage.company());
});
afterAll(async () => {
  await stage?.close();
});

const authorization = 'Bearer the-token-of-the-operators';

/** A stream as a browser reads it. */
async function follow(options: { last?: string; query?: string; url?: string } = {}) {
  const ended = new AbortController();
  const response = await fetch(`${options.url ?? stage.ground.publicUrl}/api/events${options.query ?? ''}`, {
    headers: { authorization, accept: 'text/event-stream', ...(options.last && { 'last-event-id': options.last }) },
    signal: ended.signal,
  });
  const stream = {
    status: response.status,
    events: [] as { kind: string; data: { i?: number } }[],
    progress: [] as { connections: { paused: number } }[],
    last: '',
  };
  let text = '';
  const reading = (async () => {
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        const fields = new Map(
          text
            .slice(0, end)
            .split('\n')
            .map((line) => line.split(/: (.*)/s) as [string, string]),
        );
        text = text.slice(end + 2);
        if (fields.has('id')) stream.last = fields.get('id')!;
        const data = fields.get('data');
        if (data !== undefined)
          (fields.get('event') === 'progress' ? stream.progress : stream.events).push(JSON.parse(data));
      }
    }
  })().catch(() => {});
  const end = async () => {
    ended.abort();
    await reading;
  };
  await until('the stream to begin', () => stream.last !== '');
  return { ...stream, stream, response, reading, end };
}
/** The events of these kinds: events of earlier tests may arrive, too. */
const eventsOf = (stream: { events: { kind: string }[] }, ...kinds: string[]) =>
  stream.events.map(({ kind }) => kind).filter((kind) => kinds.includes(kind));
const happen = (kind: string, more: object = {}) => stage.store.events.add({ kind, connectionId, ...more });

test('an event of any process reaches the followers of all processes at once', { tags: 'slow' }, async () => {
  const port = await freePort();
  const environment = { ...stage.ground.environment, PORT: String(port), PUBLIC_URL: `http://127.0.0.1:${port}` };
  const other = await startMirror({ ...stage.ground, environment }, stage.library, 'web');
  const here = await follow();
  const there = await follow({ url: environment.PUBLIC_URL });
  // Without notices the database is read every two seconds: each event would then take two seconds.
  const took: number[] = [];
  for (let round = 0; round <= 30; round++) {
    const began = performance.now();
    await happen(`test.round ${round}`);
    for (const { stream } of [here, there]) {
      await until('the event', () => eventsOf(stream, `test.round ${round}`).length === 1);
    }
    took.push(performance.now() - began);
  }
  // An open transaction of another test delays some events until it ends.
  expect(took.toSorted((a, b) => a - b)[10]).toBeLessThan(1500);

  await stage.mirror.api('POST', `/connections/${connectionId}/pause`);
  for (const { stream } of [here, there]) {
    const kinds = ['connection.paused', 'operator.pauseConnection'];
    await until('both events', () => eventsOf(stream, ...kinds).length === 2);
    expect(eventsOf(stream, ...kinds)).toEqual(kinds);
    await until('the progress', () => stream.progress.some((it) => it.connections.paused === 1));
  }
  await stage.mirror.api('POST', `/connections/${connectionId}/resume`);
  await here.end();
  // A process that stops closes its streams.
  await other.stop();
  await there.reading;
});

test('a follower that reconnects continues after the last event that it has seen', async () => {
  const first = await follow();
  await happen('test.one');
  await until('the event', () => eventsOf(first.stream, 'test.one').length === 1);
  await first.end();
  for (const kind of ['test.two', 'test.three']) await happen(kind);
  const second = await follow({ last: first.stream.last });
  const kinds = ['test.one', 'test.two', 'test.three'];
  await until('the others', () => eventsOf(second.stream, ...kinds).length >= 2);
  expect(eventsOf(second.stream, ...kinds)).toEqual(['test.two', 'test.three']);
  await second.end();
  // Also before the first event: the stream sends its starting position.
  const third = await follow();
  await third.end();
  await happen('test.four');
  const fourth = await follow({ last: third.stream.last });
  await until('the event', () => eventsOf(fourth.stream, 'test.four').length === 1);
  await fourth.end();
});

test('an event of a transaction that ends late reaches followers, although later events came before', async () => {
  const stream = await follow();
  const slow = new pg.Client({ connectionString: stage.ground.environment.DATABASE_URL! });
  await slow.connect();
  try {
    await slow.query('BEGIN');
    await slow.query(`INSERT INTO events (kind) VALUES ('test.slow')`);
    await happen('test.quick');
    await slow.query('COMMIT');
    await until('both', () => eventsOf(stream.stream, 'test.slow', 'test.quick').length === 2);
    // And in an order in which a position covers all events before it.
    const from = await follow({ last: stream.stream.last });
    await happen('test.after');
    await until('the next', () => eventsOf(from.stream, 'test.after').length === 1);
    expect(eventsOf(from.stream, 'test.slow', 'test.quick', 'test.after')).toEqual(['test.after']);
    await from.end();
  } finally {
    await slow.end();
    await stream.end();
  }
});

test('an unknown Last-Event-ID begins the stream at the present', { tags: 'slow' }, async () => {
  for (const [i, last] of ['9999999999999-5', 'nonsense', '1'].entries()) {
    const stream = await follow({ last });
    await happen(`test.now${i}`);
    await until('the event', () => eventsOf(stream.stream, `test.now${i}`).length === 1);
    expect(eventsOf(stream.stream, 'test.one', 'test.two')).toEqual([]);
    await stream.end();
  }
});

test('a follower gets only the events that it asked for', async () => {
  const stream = await follow({ query: '?kind=test.wanted' });
  await happen('test.other');
  await happen('test.wanted');
  await until('the event', () => stream.stream.events.length === 1);
  expect(stream.stream.events[0]!.kind).toBe('test.wanted');
  await stream.end();
});

test('a follower that reads nothing takes little memory, and delays no other', { tags: 'slow' }, async () => {
  const { host, hostname, port } = new URL(stage.ground.publicUrl);
  const deaf = connect(Number(port), hostname);
  deaf.pause();
  deaf.write(`GET /api/events HTTP/1.1\r\nhost: ${host}\r\nauthorization: ${authorization}\r\n\r\n`);
  const hearing = await follow();
  const long = 'x'.repeat(50_000);
  for (let i = 0; i < 300; i++) await happen('test.long', { data: { long, i } });
  await until('all of them', () => eventsOf(hearing.stream, 'test.long').length === 300);
  expect(hearing.stream.events.map(({ data }) => data.i).filter((i) => i !== undefined)).toEqual(
    Array.from({ length: 300 }, (_, i) => i),
  );
  // Of 15 MB this process holds one page for the stuck reader, and the kernel some; the rest stays in the database.
  const sockets = (process as never as { _getActiveHandles(): { writableLength?: number }[] })._getActiveHandles();
  expect(Math.max(...sockets.map(({ writableLength = 0 }) => writableLength))).toBeLessThan(6 * 2 ** 20);
  deaf.destroy();
  await hearing.end();
});

test('past events are listed in pages, newest first, and by asset or connection', async () => {
  const ask = async (query: string) => {
    const headers = { authorization, accept: 'application/json' };
    return (await fetch(`${stage.ground.publicUrl}/api/events${query}`, { headers })).json() as Promise<{
      events: { id: number; kind: string; connectionId: string | null; assetId: string | null }[];
      nextCursor: string | null;
    }>;
  };
  await happen('test.asset', { assetId: 'an asset' });
  expect((await ask('?assetId=an%20asset')).events).toMatchObject([
    { kind: 'test.asset', connectionId, assetId: 'an asset' },
  ]);
  expect(await ask('?assetId=nothing')).toMatchObject({ status: 404, code: 'asset_not_found' });
  expect(await ask('?connectionId=nobody')).toMatchObject({ status: 404, code: 'connection_not_found' });
  const ids: number[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page = await ask(`?limit=100&connectionId=${connectionId}${cursor && `&cursor=${cursor}`}`);
    ids.push(...page.events.map((event) => event.id));
    cursor = page.nextCursor;
  }
  expect(ids).toEqual([...new Set(ids)].sort((a, b) => b - a));
  expect(ids).toHaveLength(
    await stage.query('SELECT 1 FROM events WHERE connection_id = $1', [connectionId]).then((it) => it.length),
  );
});

/** Event streams over operations of the test's own. */
function streamsOver(own: object): EventStreams {
  const operations = {
    onEvents: () => () => {},
    followFrom: async () => ({ xact: '1', id: 0 }),
    follow: async () => [],
    ...own,
  };
  const streams = new EventStreams({
    operations: operations as never,
    log: {} as never,
    isStillValid: async () => true,
  });
  onTestFinished(() => streams.close());
  return streams;
}

test('the stream of a reader that left before it began ends at once', async () => {
  const raw = Object.assign(new PassThrough(), { writeHead: () => {} });
  const left = async () => {
    raw.destroy();
    await once(raw, 'close');
    return {};
  };
  const streams = streamsOver({ status: left });
  // Without its end, this would never resolve.
  await streams.open({ id: 'r', headers: {} } as never, { hijack: () => {}, raw } as never, {});
});

test('a stream begins with the status of its time, also after a time without streams', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  let reads = 0;
  const streams = streamsOver({ status: async () => ({ reads: ++reads }) });
  const firstStatus = async () => {
    const raw = Object.assign(new PassThrough(), { writeHead: () => {} });
    const ended = streams.open({ id: 'r', headers: {} } as never, { hijack: () => {}, raw } as never, {});
    let text = '';
    for await (const chunk of raw) {
      text += chunk;
      if (text.includes('event: progress')) break;
    }
    await ended;
    return JSON.parse(/^event: progress\ndata: (.*)$/m.exec(text)![1]!);
  };
  expect(await firstStatus()).toEqual({ reads: 1 });
  vi.advanceTimersByTime(2000);
  expect(await firstStatus()).toEqual({ reads: 2 });
});
