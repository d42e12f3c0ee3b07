import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';

/** A request as the proxy saw it, without the query, which is the secret of a link. */
export interface Passed {
  at: number;
  /** When the last byte was sent, or the connection was reset. */
  ended: number;
  method: string;
  path: string;
  range: string | undefined;
  /** 0: there was no answer. */
  status: number;
  /** Of the answer's body. */
  bytes: number;
  /** The answer was sent completely. */
  whole: boolean;
}

/** A fault, and its effect on requests. */
export interface Trouble {
  /** The share of requests, from 0 to 1. */
  share: number;
  /** This answer, without a request to the server. */
  status?: number;
  /** A delay before the request. */
  latency?: number;
  /** Delays the request until the fault is over. */
  stall?: boolean;
  /** The connection is reset after this number of bytes of a request or of its answer. */
  resetAfter?: number;
  /** The request is carried out, and its answer lost. */
  loseAnswer?: boolean;
}

export type Line = Awaited<ReturnType<typeof startProxy>>;

interface State {
  open: boolean;
  passed: Passed[];
  /** The faults that are injected now, each with its end. */
  troubles: Map<Trouble, Promise<void>>;
  inFlight: Set<ServerResponse>;
}

/** A request to the proxy, with its answer. */
interface Exchange {
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  entry: Passed;
  trouble: Trouble;
}

/**
 * A proxy between the mirror and a server: records the requests, injects faults, and keeps its address when the server is
 * killed. `random` decides which requests are hit.
 */
export async function startProxy(options: { port: number; target: number; random: () => number }) {
  const state: State = { open: true, passed: [], troubles: new Map(), inFlight: new Set() };

  const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, (incoming, outgoing) => {
    void pass(state, options, incoming, outgoing);
  });
  server.listen(options.port, '127.0.0.1');
  await once(server, 'listening');

  return {
    url: `http://127.0.0.1:${options.port}`,
    passed: state.passed,
    /** When closed, it resets all connections, like a machine without a server. */
    set open(value: boolean) {
      state.open = value;
    },
    /** Injects a fault until the returned function is called. */
    trouble(trouble: Trouble): () => void {
      return inject(state.troubles, trouble);
    },
    /** Resets every connection in use. Returns how many. */
    cut(): number {
      const lines = [...state.inFlight];
      for (const outgoing of lines) outgoing.socket?.resetAndDestroy();
      return lines.length;
    },
    async close(): Promise<void> {
      server.close();
      server.closeAllConnections();
    },
  };
}

function inject(troubles: State['troubles'], trouble: Trouble): () => void {
  const { promise: over, resolve: end } = Promise.withResolvers<void>();
  troubles.set(trouble, over);
  return () => {
    troubles.delete(trouble);
    end();
  };
}

async function pass(
  state: State,
  { target, random }: { target: number; random: () => number },
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const entry = record(state, incoming, outgoing);
  if (!state.open) return reset(incoming);

  const trouble = hit(state.troubles, random);
  if (trouble.latency) await new Promise((resolve) => setTimeout(resolve, trouble.latency));
  if (trouble.stall) await Promise.race([trouble.over, once(outgoing, 'close')]);
  if (outgoing.destroyed) return;
  if (trouble.status !== undefined) {
    entry.status = trouble.status;
    incoming.resume();
    outgoing.writeHead(trouble.status, { 'content-length': 0, connection: 'close' }).end();
    return;
  }
  forward(target, { incoming, outgoing, entry, trouble });
}

/** Adds a request to those that passed; its entry is completed when the connection closes. */
function record({ passed, inFlight }: State, incoming: IncomingMessage, outgoing: ServerResponse): Passed {
  const entry: Passed = {
    at: Date.now(),
    ended: Number.POSITIVE_INFINITY,
    method: incoming.method!,
    path: incoming.url!.split('?')[0]!,
    range: incoming.headers.range,
    status: 0,
    bytes: 0,
    whole: false,
  };
  passed.push(entry);
  inFlight.add(outgoing);
  outgoing.on('error', () => {});
  incoming.on('error', () => {});
  outgoing.once('close', () => {
    inFlight.delete(outgoing);
    entry.ended = Date.now();
    entry.whole = outgoing.writableFinished;
  });
  return entry;
}

function reset(incoming: IncomingMessage): void {
  incoming.socket.resetAndDestroy();
}

/** All faults that hit one request, as one fault, and their end. */
function hit(troubles: State['troubles'], random: () => number): Trouble & { over: Promise<unknown> } {
  const hits = [...troubles.keys()].filter(({ share }) => random() < share);
  return { ...Object.assign({}, ...hits), over: Promise.all(hits.map((one) => troubles.get(one))) };
}

/** Sends the request to the server, and the server's answer to the client. */
function forward(target: number, exchange: Exchange): void {
  const { incoming, outgoing, trouble } = exchange;
  const { connection: _, expect: __, 'keep-alive': ___, ...headers } = incoming.headers;
  const upstream = request({
    host: '127.0.0.1',
    port: target,
    method: incoming.method,
    path: incoming.url,
    headers: { ...headers, connection: 'close' },
  });
  outgoing.once('close', () => upstream.destroy());
  upstream.on('error', () => reset(incoming));
  upstream.on('response', (answer) => forwardAnswer(answer, exchange));
  let sent = 0;
  incoming.on('data', (chunk: Buffer) => {
    sent += chunk.length;
    if (trouble.resetAfter !== undefined && sent > trouble.resetAfter) reset(incoming);
  });
  incoming.pipe(upstream);
}

function forwardAnswer(answer: IncomingMessage, { incoming, outgoing, entry, trouble }: Exchange): void {
  const cut = () => reset(incoming);
  answer.on('error', cut);
  if (trouble.loseAnswer) {
    answer.resume().once('close', cut);
    return;
  }
  entry.status = answer.statusCode!;
  const kept = answer.rawHeaders.filter(
    (_, i, all) => !/^(connection|keep-alive|transfer-encoding)$/i.test(all[i - (i % 2)]!),
  );
  outgoing.writeHead(answer.statusCode!, answer.statusMessage, kept);
  answer.on('data', (chunk: Buffer) => {
    entry.bytes += chunk.length;
    if (trouble.resetAfter !== undefined && entry.bytes > trouble.resetAfter) cut();
  });
  // An interrupted answer must not look complete.
  answer.once('close', () => answer.complete || cut());
  answer.pipe(outgoing);
}
