import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The minimum of an HTTP server in Node, with an answer as long as that about one asset. */
const body = JSON.stringify({ asset: { text: 'x'.repeat(1200) } });

const server = createServer((_request, response) => {
  response.setHeader('content-type', 'application/json; charset=utf-8');
  response.end(body);
}).listen(0, '127.0.0.1', () => process.send!((server.address() as AddressInfo).port));

process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send!({ cpu: (user + system) / 1e6, rss: process.memoryUsage().rss, times: [] });
});
process.on('disconnect', () => process.exit());
