import { once } from 'node:events';
import { createLog } from '../../src/floor/log.ts';
import { OAuthClient } from '../../src/oauth/client.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { Tokens } from '../../src/oauth/tokens.ts';
import { openStore } from '../../src/store/store.ts';

/** The options of the process, as JSON in its only argument. */
export interface Order {
  databaseUrl: string;
  apiUrl: string;
  clientId: string;
  clientSecret: string;
  key: string;
  connectionId: string;
  callers: number;
  leaseMs: number;
}

// One of several processes that ask for the same token at once: says `ready`, waits for a line, says `calling`, and ends
// with what each caller got. The log is on stderr.
const order = JSON.parse(process.argv[2]!) as Order;
const log = createLog({ level: 'info', pretty: false, destination: process.stderr });
const store = await openStore({ url: order.databaseUrl, log });
const tokens = new Tokens({
  store,
  client: new OAuthClient(order),
  sealer: createSealer([Buffer.from(order.key, 'base64')]),
  log,
  instance: `process ${process.pid}`,
  leaseMs: order.leaseMs,
});
process.stdout.write('ready\n');
await once(process.stdin, 'data');
const calls = Array.from({ length: order.callers }, () => tokens.getAccessToken(order.connectionId));
process.stdout.write('calling\n');
const results = (await Promise.allSettled(calls)).map((call) =>
  call.status === 'fulfilled' ? `${call.value.version} ${call.value.value}` : call.reason.name,
);
process.stdout.write(`${JSON.stringify(results)}\n`);
await store.close();
process.exit();
