import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';

/** A request that came by, as seen from outside of both sides. It holds no query: a link's query is its secret. */
export interface Passed {
  at: number;
  /** When the last byte had gone, or the line was cut. */
  ended: number;
  method: string;
  path: string;
  range: string | undefined;
  /** 0: there was no answer. */
  status: number;
  /** Of the answer's body. */
  bytes: number;
  /** The answer went out to its last byte. */
  whole: boolean;
}

/** What happens to requests while it is on. */
export interface Trouble {
  /** Of how many requests, from 0 to 1. */
  share: number;
  /** Answers so, without asking the server. */
  status?: number;
  /** Waits so long first. */
  latency?: number;
  /** Holds the request back until the trouble is over. */
  stall?: boolean;
  /** The line is reset when so many bytes have passed, of a request or of its answer. */
  resetAfter?: number;
  /** The request is carried out, and its answer lost. */
  loseAnswer?: boolean;
}

export type Line = Awaited<ReturnType<typeof startProxy>>;

/**
 * Stands between the mirror and a server: writes down what comes by, makes trouble, and stays where it is when the server
 * is killed. `random` decides which requests are hit.
 */
export async function startProxy(options: { port: number; target: number; random: () => number }) {
  const passed: Passed[] = [];
  const troubles = new Map<Trouble, Promise<void>>();
  const inFlight = new Set<ServerResponse>();
  let open = true;

  const hit = () => {
    const hits = [...troubles.keys()].filter(({ share }) => options.random() < share);
    return { ...Object.assign({}, ...hits), over: Promise.all(hits.map((one) => troubles.get(one))) } as Trouble & {
      over: Promise<unknown>;
    };
  };

  async function pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
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
    const cut = () => incoming.socket.resetAndDestroy();
    if (!open) return void cut();

    const trouble = hit();
    if (trouble.latency) await new Promise((resolve) => setTimeout(resolve, trouble.latency));
    if (trouble.stall) await Promise.race([trouble.over, once(outgoing, 'close')]);
    if (outgoing.destroyed) return;
    if (trouble.status !== undefined) {
      entry.status = trouble.status;
      incoming.resume();
      outgoing.writeHead(trouble.status, { 'content-length': 0, connection: 'close' }).end();
      return;
    }

    const { connection: _, expect: __, 'keep-alive': ___, ...headers } = incoming.headers;
    const upstream = request({
      host: '127.0.0.1',
      port: options.target,
      method: incoming.method,
      path: incoming.url,
      headers: { ...headers, connection: 'close' },
    });
    outgoing.once('close', () => upstream.destroy());
    upstream.on('error', cut);
    upstream.on('response', (answer) => {
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
      // An answer that breaks off must not look like one that is done.
      answer.once('close', () => answer.complete || cut());
      answer.pipe(outgoing);
    });
    let sent = 0;
    incoming.on('data', (chunk: Buffer) => {
      sent += chunk.length;
      if (trouble.resetAfter !== undefined && sent > trouble.resetAfter) cut();
    });
    incoming.pipe(upstream);
  }

  const server = createServer({ keepAliveTimeout: 60_000, requestTimeout: 0 }, (incoming, outgoing) => {
    void pass(incoming, outgoing);
  });
  server.listen(options.port, '127.0.0.1');
  await once(server, 'listening');

  return {
    url: `http://127.0.0.1:${options.port}`,
    passed,
    /** Closed, it resets whatever comes, as a machine does on which nothing listens. */
    set open(value: boolean) {
      open = value;
    },
    /** Makes trouble until the returned function is called. */
    trouble(trouble: Trouble): () => void {
      let end = () => {};
      troubles.set(
        trouble,
        new Promise((resolve) => {
          end = resolve;
        }),
      );
      return () => {
        troubles.delete(trouble);
        end();
      };
    },
    /** Resets every line that something is on. Says how many. */
    cut(): number {
      const lines = [...inFlight];
      for (const outgoing of lines) outgoing.socket?.resetAndDestroy();
      return lines.length;
    },
    async close(): Promise<void> {
      server.close();
      server.closeAllConnections();
    },
  };
}
