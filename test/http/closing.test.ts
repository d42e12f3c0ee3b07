// @module-tag slow
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

test.each([
  // This happens for a moment behind every load balancer.
  [
    'a request with incomplete headers',
    'GET /api/status HTTP/1.1\r\nHost: here\r\n',
    'Authorization: Bearer the-token-of-the-operators\r\n\r\n',
  ],
  [
    'a request whose body is still to come',
    'POST /api/connect-links HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer the-token-of-the-operators\r\n' +
      'Content-Type: application/json\r\nContent-Length: 2\r\n\r\n',
    '{}',
  ],
])('when the process stops, %s is answered before its connection is closed', async (_, before, after) => {
  const scene = await newScene({ role: 'web' });
  const { port } = scene.ground;
  const socket = connect(port, '127.0.0.1');
  let received = '';
  socket.on('data', (chunk) => (received += chunk));
  try {
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    socket.write(before);
    await scene.mirror.api('GET', '/status');
    const stopped = scene.mirror.stop();
    await until('nobody to listen any more', () => refused(port));
    socket.write(after);
    await Promise.all([stopped, closed]);
    expect(received).toMatch(/^HTTP\/1.1 20[01] /);
    expect(received).toMatch(/^connection: close/im);
  } finally {
    socket.destroy();
    await scene.close();
  }
});

function refused(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', () => resolve(true));
  });
}
