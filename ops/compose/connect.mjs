import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectLikeABrowser } from '/app/dist/cli/browser.js';

/** Connects the demo's mirror to the demo's library as a browser would, once, and tells when everything is mirrored. */
const { PUBLIC_URL } = process.env;
const token = readFileSync('/run/secrets/admin_token', 'utf8').trim();

async function api(method, path, body) {
  const response = await fetch(`${PUBLIC_URL}/api${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    ...(body && { body: JSON.stringify(body) }),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

if ((await api('GET', '/connections')).connections.length === 0) {
  await connectLikeABrowser((await api('POST', '/connect-links', {})).url);
}
let said = '';
for (;;) {
  const { assets, syncs, outstanding } = await api('GET', '/status');
  const { pending, transferring, processing, mirrored, unavailable, failed } = assets.byState;
  const line = `${mirrored} of ${assets.expected} assets mirrored`;
  if (line !== said) console.log(line);
  said = line;
  const moving = pending + transferring + processing + syncs.waiting + syncs.running + outstanding.sidecars;
  if (assets.total > 0 && moving === 0) {
    console.log(`${unavailable} without a file at the library, ${failed} failed. The dashboard: ${PUBLIC_URL}`);
    process.exit(failed > 0 ? 1 : 0);
  }
  await sleep(1000);
}
