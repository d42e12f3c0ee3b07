import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Relay = Awaited<ReturnType<typeof startRelay>>;

/** Answers instead of the library; true when it did. */
type Answer = (response: ServerResponse) => unknown;

/** A proxy in front of the library's OAuth endpoints, with which a test delays or replaces requests and answers. */
export async function startRelay(target: string) {
  const relay = {
    url: '',
    /** The requests so far, in order. */
    requests: [] as { path: string; headers: IncomingHttpHeaders; body: string }[],
    /** How many of them got the library's answer. */
    answered: 0,
    /** Runs before the library sees a request. */
    before: undefined as ((response: ServerResponse) => Promise<void>) | undefined,
    /** Runs after the library has handled the request, before its answer is sent. */
    after: undefined as (() => Promise<void>) | undefined,
    /** Answers instead of the library, which gets no request. */
    instead: undefined as Answer | undefined,
    reset() {
      relay.requests = [];
      relay.answered = 0;
      relay.before = relay.after = relay.instead = undefined;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    relay.requests.push({ path: request.url!, headers: request.headers, body });
    if (relay.instead) {
      await relay.instead(response);
      return;
    }
    const { before, after } = relay;
    await before?.(response);
    if (response.destroyed) return;
    const answer = await fetch(target + request.url, {
      method: request.method!,
      headers: {
        ...(request.headers.authorization && { authorization: request.headers.authorization }),
        ...(request.headers['content-type'] && { 'content-type': request.headers['content-type'] }),
      },
      ...(body && { body }),
    });
    const text = await answer.text();
    await after?.();
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' }).end(text);
    relay.answered++;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  relay.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return relay;
}

/** A point where a request waits until the test opens it; it reports each arrival. */
export function latch() {
  const opened = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  return {
    /** Delays each caller until it is opened. */
    async pass(): Promise<void> {
      reached.resolve();
      await opened.promise;
    },
    /** A caller waits at it. */
    reached: reached.promise,
    open: () => opened.resolve(),
  };
}
