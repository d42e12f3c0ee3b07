import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';

export interface Received {
  id: string;
  at: number;
  /** `webhook-timestamp` */
  sentAt: number;
  type: string;
  timestamp: string;
  data: Record<string, unknown>;
  raw: string;
}

/** An endpoint as its users write one: each message is verified by the Standard Webhooks package. */
export async function startReceiver(secrets: string[]) {
  const received: Received[] = [];
  const refused: string[] = [];
  let answer: (response: ServerResponse, message: Received) => void = (response) => response.writeHead(204).end();
  const server = createServer(async (request, response) => {
    let raw = '';
    for await (const chunk of request) raw += chunk;
    const headers = request.headers as Record<string, string>;
    try {
      for (const secret of secrets) new Webhook(secret).verify(raw, headers);
    } catch (error) {
      refused.push(`${error}: ${raw}`);
      response.writeHead(401).end();
      return;
    }
    const message = {
      ...JSON.parse(raw),
      id: headers['webhook-id']!,
      sentAt: Number(headers['webhook-timestamp']),
      at: Date.now(),
      raw,
    };
    received.push(message);
    answer(response, message);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook?key=the-key-of-the-address`,
    received,
    /** Messages whose signature did not hold. */
    refused,
    of: (type: string) => received.filter((message) => message.type === type),
    answer(next: (response: ServerResponse, message: Received) => void): void {
      answer = next;
    },
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
