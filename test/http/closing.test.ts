import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, test } from 'vitest';
import { newScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

test('what comes on an open connection while the process stops is answered, and the connection closed behind it', async () => {
  const scene = await newScene({ role: 'web' });
  const { port } = scene.ground;
  const socket = connect(port, '127.0.0.1');
  let heard = '';
  socket.on('data', (chunk) => (heard += chunk));
  try {
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    // A request that is not whole yet, as it is for a moment behind every balancer.
    socket.write('GET /api/status HTTP/1.1\r\nHost: here\r\n');
    await scene.mirror.api('GET', '/status');
    const stopped = scene.mirror.stop();
    await until('nobody to listen any more', () => refused(port));
    socket.write('Authorization: Bearer the-operators-token\r\n\r\n');
    await Promise.all([stopped, closed]);
    expect(heard).toMatch(/^HTTP\/1.1 200 /);
    expect(heard).toMatch(/^connection: close/im);
  } finally {
    socket.destroy();
    await scene.close();
  }
});

test('what was asked before the stop is answered, and its connection closed, too', async () => {
  const scene = await newScene({ role: 'web' });
  const { port } = scene.ground;
  const socket = connect(port, '127.0.0.1');
  let heard = '';
  socket.on('data', (chunk) => (heard += chunk));
  try {
    await once(socket, 'connect');
    const closed = once(socket, 'close');
    // Its head is here, and it is under way; the body takes its time.
    socket.write(
      'POST /api/connect-links HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer the-operators-token\r\n' +
        'Content-Type: application/json\r\nContent-Length: 2\r\n\r\n',
    );
    await scene.mirror.api('GET', '/status');
    const stopped = scene.mirror.stop();
    await until('nobody to listen any more', () => refused(port));
    socket.write('{}');
    await Promise.all([stopped, closed]);
    expect(heard).toMatch(/^HTTP\/1.1 20\d /);
    expect(heard).toMatch(/^connection: close/im);
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
