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

/**
 * A proxy between the mirror and a server: records the requests, injects faults, and keeps its address when the server is
 * killed. `random` decides which requests are hit.
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
      // An interrupted answer must not look complete.
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
    /** When closed, it resets all connections, like a machine without a server. */
    set open(value: boolean) {
      open = value;
    },
    /** Injects a fault until the returned function is called. */
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
    /** Resets every connection in use. Returns how many. */
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
