import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';

export type Bare = Awaited<ReturnType<typeof startBare>>;
type Answer = (request: IncomingMessage, response: ServerResponse) => unknown;

/** A server with answers that the library never gives: each request gets the next answer, the last one is repeated. */
export async function startBare() {
  const sockets = new Set<Socket>();
  let answers: Answer[] = [];
  const bare = {
    url: '',
    requests: [] as { path: string; headers: IncomingMessage['headers'] }[],
    answer(...next: Answer[]) {
      answers = next;
      bare.requests = [];
    },
    /** Connections that are open now. */
    get sockets() {
      return sockets.size;
    },
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  const server: Server = createServer((request, response) => {
    bare.requests.push({ path: request.url!, headers: request.headers });
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    void answer?.(request, response);
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  bare.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return bare;
}

/** An answer of status, body and headers. */
export const answer =
  (status: number, body: unknown = '', headers: Record<string, string> = {}): Answer =>
  (_request, response) =>
    response
      .writeHead(status, headers)
      .end(typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body));

/** An answer with these raw bytes; then the connection ends. */
export const raw =
  (text: string): Answer =>
  (request) =>
    request.socket.end(text);

/** No answer at all. */
export const hangUp: Answer = (request) => request.socket.destroy();
