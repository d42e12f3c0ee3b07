import { createServer, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Agent, request } from 'undici';

export type Asked = {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: string;
};
export type Answered = { status: number; headers: Record<string, string | string[]>; body: Buffer };

/** How a proxy breaks a service. `ask` changes requests, `answer` changes answers. */
export type Fault = {
  ask?: (asked: Asked) => void;
  /** Answers instead of the service. */
  instead?: (asked: Asked) => Answered | undefined;
  answer?: (answered: Answered, asked: Asked) => void;
  /** Undoes a change made elsewhere. */
  repair?: () => void;
};

export type BreakingProxy = Awaited<ReturnType<typeof startBreakingProxy>>;

/** A proxy in front of a correct service that breaks one rule at a time. */
export async function startBreakingProxy() {
  const agent = new Agent();
  let target = '';
  let fault: Fault = {};

  async function pass(incoming: IncomingMessage): Promise<Answered> {
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const url = new URL(incoming.url!, target);
    const asked: Asked = {
      method: incoming.method!,
      path: url.pathname,
      query: url.searchParams,
      headers: incoming.headers,
      body: Buffer.concat(chunks).toString(),
    };
    fault.ask?.(asked);
    const answered = fault.instead?.(asked) ?? (await forward(asked));
    fault.answer?.(answered, asked);
    return answered;
  }

  async function forward({ method, path, query, headers, body }: Asked): Promise<Answered> {
    const { host: _host, connection: _, 'content-length': _length, 'transfer-encoding': __, ...rest } = headers;
    const search = query.size > 0 ? `?${query}` : '';
    const answer = await request(`${target}${path}${search}`, {
      method: method as 'GET',
      headers: Object.entries(rest).flatMap(([name, value]) => (value === undefined ? [] : [name, String(value)])),
      dispatcher: agent,
      ...(body !== '' && { body }),
    });
    const bytes = Buffer.from(await answer.body.arrayBuffer());
    return { status: answer.statusCode, headers: answer.headers as Answered['headers'], body: bytes };
  }

  const server = createServer((incoming, outgoing) => {
    pass(incoming).then(
      ({ status, headers, body }) => {
        const { connection: _, 'keep-alive': __, 'transfer-encoding': ___, ...rest } = headers;
        if (incoming.method !== 'HEAD') rest['content-length'] = String(body.length);
        outgoing.writeHead(status, rest);
        outgoing.end(body);
      },
      (error: unknown) => outgoing.destroy(error as Error),
    );
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lead: (to: string) => {
      target = to;
    },
    breakBy: (by: Fault) => {
      fault.repair?.();
      fault = by;
    },
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
      await agent.destroy();
    },
  };
}
