import { createServer } from 'node:net';

// Below the range from which outgoing connections get theirs, and apart for each worker of the test runner.
const first = 10_000 + (Number(process.env.VITEST_POOL_ID ?? 0) % 10) * 2000;
let next = Math.floor(Math.random() * 2000);

/** A free port of the loopback that no other test gets. */
export async function freePort(): Promise<number> {
  for (;;) {
    next = (next + 1) % 2000;
    const port = first + next;
    const server = createServer();
    const free = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}
