import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';

/** A fault of one connection. Bytes pass unchanged unless it says otherwise. */
export interface Trouble {
  /** Sees and may change what the client sends; `sent` is the number of bytes that this fault has seen on this connection. */
  request?(chunk: Buffer, sent: number, ends: { client: Socket; server: Socket }): Buffer | undefined;
  response?(chunk: Buffer, ends: { client: Socket; server: Socket }): Buffer | undefined;
}

/** A proxy to a real server that injects faults on request. */
export async function newLine(endpoint: string) {
  const { hostname, port } = new URL(endpoint);
  let trouble: Trouble = {};
  const sockets = new Set<Socket>();
  let accepted = 0;
  const troubled = new Set<Socket>();
  const line = createServer({ noDelay: true }, (client) => {
    accepted++;
    const server = connect(Number(port), hostname);
    const ends = { client, server };
    let here = trouble;
    let sent = 0;
    sockets.add(client).add(server);
    client.on('data', (chunk) => {
      if (here !== trouble) [here, sent] = [trouble, 0];
      const passed = here.request ? here.request(chunk, sent, ends) : chunk;
      sent += chunk.length;
      if (passed !== chunk) troubled.add(client);
      if (passed && !server.destroyed) server.write(passed);
    });
    server.on('data', (chunk) => {
      const passed = trouble.response ? trouble.response(chunk, ends) : chunk;
      if (passed !== chunk) troubled.add(client);
      if (passed && !client.destroyed) client.write(passed);
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => {});
      one.on('close', () => {
        sockets.delete(one);
        troubled.delete(one);
        other.destroy();
      });
    }
  });
  line.listen(0, '127.0.0.1');
  await once(line, 'listening');
  const at = (line.address() as { port: number }).port;
  return {
    endpoint: `http://127.0.0.1:${at}`,
    set(next: Trouble) {
      trouble = next;
    },
    get open() {
      return sockets.size;
    },
    /** Connections so far. */
    get accepted() {
      return accepted;
    },
    /** Connections that a fault has damaged: their clients must close them. */
    get troubled() {
      return troubled.size;
    },
    cut() {
      for (const socket of sockets) socket.destroy();
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => line.close(resolve));
    },
  };
}
