import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Matches tokens of the library (spec, section 2.2). */
const token = /svc[a-z]_[\w-]{8,}/g;

/** The secrets of an exchange: tokens, credentials, verifiers, and signatures of links. */
function secretsIn(text: string): string[] {
  const found: string[] = text.match(token) ?? [];
  for (const [, credentials] of text.matchAll(/(?:Bearer|Basic) ([\w+/=.-]{8,})/gi)) found.push(credentials!);
  for (const [, value] of text.matchAll(/[?&](?:signature|code_verifier|refresh_token|code|link)=([\w%.~-]{8,})/g)) {
    found.push(value!, decodeURIComponent(value!));
  }
  return found;
}

/** A proxy between the mirror and the API of the library, which sees all their secrets. */
export async function newWire(target: string) {
  const { hostname, port } = new URL(target);
  const secrets = new Set<string>();
  const keep = (text: string) => {
    for (const secret of secretsIn(text)) secrets.add(secret);
  };
  const server = createServer((incoming, outgoing) => {
    keep(JSON.stringify(incoming.headers));
    const sent: Buffer[] = [];
    incoming.on('data', (chunk) => sent.push(chunk));
    incoming.on('end', () => keep(`?${Buffer.concat(sent)}`));
    const onwards = request({ hostname, port, method: incoming.method, path: incoming.url, headers: incoming.headers });
    onwards.on('error', () => outgoing.destroy());
    onwards.on('response', (answer) => {
      const come: Buffer[] = [];
      answer.on('data', (chunk) => come.push(chunk));
      answer.on('end', () => keep(Buffer.concat(come).toString()));
      answer.on('error', () => outgoing.destroy());
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
    });
    incoming.pipe(onwards);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    secrets,
    keep,
    async close(): Promise<void> {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
