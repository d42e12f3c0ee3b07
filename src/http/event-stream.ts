import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '../floor/log.ts';
import type { EventFilter } from '../operations/events/events.ts';
import type { Operations } from '../operations/operations.ts';
import { Refused } from '../operations/refused.ts';
import type { Authenticated } from './sign-in/authenticate.ts';

/** How often the status is read, and events are looked for without a notification. */
const tickMs = 2000;
/** Shows readers and proxies that the stream is alive. Proxies may close it after 15 s of silence. */
const heartbeatMs = 10_000;
/** A reader that takes nothing for this long is disconnected. */
const stuckMs = 30_000;
const mostStreams = 200;
/** How often the token or session of a reader is checked. */
const checkMs = 10_000;
/** Maximum events that are in memory for one stream. */
const pageSize = 100;

/**
 * Server-Sent Events (HTML standard, section 9.2): each event with an id to resume from (`Last-Event-ID`), and `progress`,
 * without an id: the status whenever it has changed. Each stream reads the database at its own speed, so nothing piles up for
 * a slow reader.
 */
export class EventStreams {
  readonly #operations: Operations;
  readonly #log: Log;
  readonly #isStillValid: (operator: Authenticated) => Promise<boolean>;
  readonly #streams = new Set<Stream>();
  readonly #unsubscribe: () => void;
  readonly #ticker: NodeJS.Timeout;
  #progress: string | undefined;
  #isReading = false;
  #isClosed = false;

  constructor(deps: {
    operations: Operations;
    log: Log;
    /** Whether the token or session of a reader is still valid. */
    isStillValid: (operator: Authenticated) => Promise<boolean>;
  }) {
    const { operations, log } = deps;
    this.#operations = operations;
    this.#log = log;
    this.#isStillValid = deps.isStillValid;
    this.#unsubscribe = operations.onEvents(() => this.#wakeAll());
    this.#ticker = setInterval(() => this.#tick(), tickMs).unref();
  }

  async open(request: FastifyRequest, reply: FastifyReply, filter: EventFilter): Promise<void> {
    if (this.#streams.size >= mostStreams) {
      throw new Refused(503, 'too_many_streams', `This process has ${mostStreams} event streams. Try again later.`);
    }
    const last = request.headers['last-event-id'];
    const position = await this.#operations.followFrom(filter, typeof last === 'string' ? last : undefined);
    this.#progress ??= JSON.stringify(await this.#operations.status());
    if (this.#isClosed) {
      throw new Refused(503, 'stopping', 'This process is stopping. Connect again and send Last-Event-ID to resume.');
    }
    reply.hijack();
    const { operator } = request;
    const stream = new Stream(reply.raw, filter, async () => !operator || this.#isStillValid(operator));
    this.#streams.add(stream);
    try {
      stream.begin(request.id, position);
      await stream.follow(this.#operations, position, () => this.#progress);
    } catch (err) {
      if (!stream.isEnded) this.#log.debug({ event: 'event_stream.ended', err }, 'event stream ended');
    } finally {
      this.#streams.delete(stream);
      reply.raw.destroy();
    }
  }

  close(): void {
    this.#isClosed = true;
    clearInterval(this.#ticker);
    this.#unsubscribe();
    for (const stream of this.#streams) stream.end();
  }

  async #tick(): Promise<void> {
    if (this.#isReading) return;
    if (this.#streams.size === 0) {
      // The next stream begins with the status of its time.
      this.#progress = undefined;
      return;
    }
    this.#isReading = true;
    try {
      this.#progress = JSON.stringify(await this.#operations.status());
    } catch (err) {
      this.#log.debug({ event: 'event_stream.status_read_failed', err }, 'status for event streams not read');
    } finally {
      this.#isReading = false;
    }
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const stream of this.#streams) stream.wake();
  }
}

type Position = Awaited<ReturnType<Operations['followFrom']>>;

class Stream {
  readonly #out: ServerResponse;
  readonly #filter: EventFilter;
  readonly #isAllowed: () => Promise<boolean>;
  readonly #ended = new AbortController();
  #isWoken = false;
  #goOn = () => {};
  #sentAt = 0;
  #checkedAt = performance.now();

  constructor(out: ServerResponse, filter: EventFilter, isAllowed: () => Promise<boolean>) {
    this.#out = out;
    this.#filter = filter;
    this.#isAllowed = isAllowed;
    this.#ended.signal.addEventListener('abort', () => this.wake());
    out.on('close', () => this.end()).on('error', () => this.end());
    // The reader may have left before this.
    if (out.destroyed) this.end();
  }

  get isEnded(): boolean {
    return this.#ended.signal.aborted;
  }

  end(): void {
    this.#ended.abort();
  }

  /** There may be something new. */
  wake(): void {
    this.#isWoken = true;
    this.#goOn();
  }

  begin(requestId: string, position: Position): void {
    this.#out.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'x-request-id': requestId,
      // Some proxies buffer responses.
      'x-accel-buffering': 'no',
    });
    this.#send(`retry: 3000\nid: ${position.xact}-${position.id}\n\n`);
  }

  /** Sends the events after `position` as they come, until the stream ends. */
  async follow(operations: Operations, from: Position, progressNow: () => string | undefined): Promise<void> {
    let position = from;
    let sent: string | undefined;
    while (!this.isEnded) {
      this.#isWoken = false;
      const page = await operations.follow(position, pageSize);
      for (const { event, cursor } of page) {
        if (matches(event, this.#filter)) this.#send(`id: ${cursor}\ndata: ${JSON.stringify(event)}\n\n`);
      }
      position = page.at(-1)?.position ?? position;
      const progress = progressNow();
      if (progress !== sent) this.#send(`event: progress\ndata: ${progress}\n\n`);
      sent = progress;
      if (performance.now() - this.#sentAt > heartbeatMs) this.#send(': still here\n\n');
      if (!(await this.#mayContinue())) return;
      if (this.#out.writableNeedDrain) {
        await once(this.#out, 'drain', { signal: AbortSignal.any([this.#ended.signal, AbortSignal.timeout(stuckMs)]) });
      }
      if (page.length < pageSize && !this.#isWoken) {
        await new Promise<void>((resolve) => {
          this.#goOn = resolve;
        });
      }
    }
  }

  /** False once the token or session has ended; checked once in a while. */
  async #mayContinue(): Promise<boolean> {
    if (performance.now() - this.#checkedAt < checkMs) return true;
    this.#checkedAt = performance.now();
    return this.#isAllowed();
  }

  #send(text: string): void {
    this.#out.write(text);
    this.#sentAt = performance.now();
  }
}

const matches = (event: { connectionId: string | null; assetId: string | null; kind: string }, filter: EventFilter) =>
  (['connectionId', 'assetId', 'kind'] as const).every(
    (name) => filter[name] === undefined || filter[name] === event[name],
  );
