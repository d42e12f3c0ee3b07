import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A fault of requests to a real server. Other requests pass unchanged. */
export interface Trouble {
  on(call: { method: string; url: string; headers: IncomingHttpHeaders }): boolean;
  times: number;
  /** The request is passed on only then. */
  after?: Promise<unknown>;
  /** Answered instead of the server, after the body has arrived. */
  answer?: { status: number; body: string };
  /** Added to the answer of the server. */
  addHeaders?: Record<string, string>;
  /** The server handles the request, and its answer is lost. */
  dropAnswer?: boolean;
  /** The connection is reset after this number of bytes of the body. */
  resetAfter?: number;
}

/** An error in the format of S3. */
export const slowDown = {
  status: 503,
  body: '<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>',
};
export const internalError = {
  status: 500,
  body: '<?xml version="1.0" encoding="UTF-8"?><Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>',
};

/** A proxy to a real HTTP server. `calls` has all its requests. */
export async function newHttpLine(endpoint: string) {
  const { hostname, port } = new URL(endpoint);
  let troubles: Trouble[] = [];
  const calls: { method: string; url: string; met: boolean }[] = [];

  function trouble(incoming: IncomingMessage): Trouble | undefined {
    const call = { method: incoming.method!, url: incoming.url! };
    const { headers } = incoming;
    const found = troubles.find((each) => each.times > 0 && each.on({ ...call, headers }));
    if (found) found.times--;
    calls.push({ ...call, met: found !== undefined });
    return found;
  }

  const server = createServer(async (incoming, outgoing) => {
    const met = trouble(incoming);
    incoming.on('error', () => {});
    if (met?.after) await met.after;
    if (met?.answer) {
      const { status, body } = met.answer;
      incoming.resume().on('end', () => outgoing.writeHead(status, { 'content-type': 'application/xml' }).end(body));
      return;
    }
    const { expect: _, ...headers } = incoming.headers;
    const onwards = request({ hostname, port, method: incoming.method, path: incoming.url, headers }, (answer) => {
      answer.on('error', () => outgoing.destroy());
      if (met?.dropAnswer) {
        answer.resume().on('end', () => incoming.socket.resetAndDestroy());
        return;
      }
      outgoing.writeHead(answer.statusCode!, { ...answer.headers, ...met?.addHeaders });
      answer.pipe(outgoing);
    });
    onwards.on('error', () => outgoing.destroy());
    outgoing.on('close', () => onwards.destroy());
    if (met?.resetAfter !== undefined) {
      let come = 0;
      incoming.on('data', (chunk) => {
        come += chunk.length;
        if (come > met.resetAfter!) {
          incoming.socket.resetAndDestroy();
          onwards.destroy();
        }
      });
    }
    incoming.pipe(onwards);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    set(...next: Trouble[]): void {
      troubles = next;
      calls.length = 0;
    },
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The S3 operation of a request, if transfers use it. */
export const asks = {
  put: ({ method, url }: { method: string; url: string }) =>
    method === 'PUT' && !url.includes('uploadId=') && !url.includes('_mirror'),
  begin: ({ method, url }: { method: string; url: string }) => method === 'POST' && /[?&]uploads(=|&|$)/.test(url),
  part: ({ method, url }: { method: string; url: string }) => method === 'PUT' && url.includes('uploadId='),
  complete: ({ method, url }: { method: string; url: string }) => method === 'POST' && url.includes('uploadId='),
};
