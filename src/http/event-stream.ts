import { once } from 'node:events';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '../log.ts';
import type { Operations } from '../operations/operations.ts';
import { Problem } from './problems.ts';

/** How often what happens here is told (`progress`), and looked for although nobody has said that there is any. */
const tickMs = 2000;
/** So that who listens, and what lies between, know that the line is good. */
const heartbeatMs = 15_000;
/** Who takes nothing for this long is let go. */
const stuckMs = 30_000;
const mostStreams = 200;
/** Events that are read, and held, for one stream at a time. */
const pageSize = 100;

export interface EventFilter {
  connectionId?: string | undefined;
  assetId?: string | undefined;
  kind?: string | undefined;
}

/**
 * Server-Sent Events (HTML standard, section 9.2): each event with an id from which a later stream goes on
 * (`Last-Event-ID`), and, as `progress` and without an id, the status whenever it has changed. Each stream reads the records
 * at its own adaptiveLimit, so nothing piles up for one that is slow.
 */
export function createEventStreams(deps: { operations: Operations; log: Log }) {
  const { operations, log } = deps;
  const streams = new Set<{ wake: () => void; end: () => void }>();
  const wakeAll = () => {
    for (const { wake } of streams) wake();
  };
  const silence = operations.onEvents(wakeAll);
  let progress: string | undefined;
  let looking = false;
  let closed = false;
  const ticker = setInterval(async () => {
    if (streams.size === 0 || looking) return;
    looking = true;
    try {
      progress = JSON.stringify(await operations.status());
    } catch (err) {
      log.debug({ err }, 'no status for those who follow');
    } finally {
      looking = false;
    }
    wakeAll();
  }, tickMs).unref();

  return {
    async open(request: FastifyRequest, reply: FastifyReply, filter: EventFilter): Promise<void> {
      if (streams.size >= mostStreams) {
        throw new Problem(
          503,
          'too_many_streams',
          `${mostStreams} follow the events of this process already. Try again later.`,
        );
      }
      const last = request.headers['last-event-id'];
      let place = await operations.followFrom(typeof last === 'string' ? last : undefined);
      progress ??= JSON.stringify(await operations.status());
      if (closed) {
        throw new Problem(503, 'stopping', 'This process is stopping. Connect again, and go on behind Last-Event-ID.');
      }

      reply.hijack();
      const out = reply.raw;
      const ended = new AbortController();
      let woken = false;
      let goOn = () => {};
      const wake = () => {
        woken = true;
        goOn();
      };
      const stream = { wake, end: () => ended.abort() };
      streams.add(stream);
      ended.signal.addEventListener('abort', wake);
      out.on('close', stream.end).on('error', stream.end);
      let spoken = performance.now();
      const say = (text: string) => {
        out.write(text);
        spoken = performance.now();
      };
      try {
        out.writeHead(200, {
          'content-type': 'text/event-stream; charset=utf-8',
          'cache-control': 'no-store',
          'x-content-type-options': 'nosniff',
          'x-request-id': request.id,
          // Some proxies collect what they pass on.
          'x-accel-buffering': 'no',
        });
        say(`retry: 3000\nid: ${place.xact}-${place.id}\n\n`);
        let told: string | undefined;
        while (!ended.signal.aborted) {
          woken = false;
          const page = await operations.follow(place, pageSize);
          for (const { event, mark } of page) {
            if (matches(event, filter)) say(`id: ${mark}\ndata: ${JSON.stringify(event)}\n\n`);
          }
          place = page.at(-1)?.place ?? place;
          if (progress !== told) say(`event: progress\ndata: ${progress}\n\n`);
          told = progress;
          if (performance.now() - spoken > heartbeatMs) say(': still here\n\n');
          if (out.writableNeedDrain) {
            await once(out, 'drain', { signal: AbortSignal.any([ended.signal, AbortSignal.timeout(stuckMs)]) });
          }
          if (page.length < pageSize && !woken) {
            await new Promise<void>((resolve) => {
              goOn = resolve;
            });
          }
        }
      } catch (err) {
        if (!ended.signal.aborted) log.debug({ err }, 'a stream of events ended');
      } finally {
        streams.delete(stream);
        out.destroy();
      }
    },

    close(): void {
      closed = true;
      clearInterval(ticker);
      silence();
      for (const { end } of streams) end();
    },
  };
}

const matches = (event: { connectionId: string | null; assetId: string | null; kind: string }, filter: EventFilter) =>
  (['connectionId', 'assetId', 'kind'] as const).every(
    (name) => filter[name] === undefined || filter[name] === event[name],
  );
