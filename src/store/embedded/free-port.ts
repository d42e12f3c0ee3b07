import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';

/** The wanted port if it is free on this machine, otherwise any free one. */
export async function freePort(wanted = 0): Promise<number> {
  const server = createServer().listen(wanted, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch (error) {
    if (wanted === 0) throw error;
    return freePort();
  }
  const { port } = server.address() as AddressInfo;
  await once(server.close(), 'close');
  return port;
}
