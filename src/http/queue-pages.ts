import type { FastifyInstance } from 'fastify';
import { Refused } from '../operations/refused.ts';
import type { openQueueBoard } from './queue-board.ts';

/**
 * `/queues`: the queue dashboard. Its modules are loaded with the first request, because it is rarely used. Access was checked
 * before.
 */
export function queuePages(app: FastifyInstance, deps: Parameters<typeof openQueueBoard>[0]): void {
  let board: ReturnType<typeof openQueueBoard> | undefined;
  const open = async () => {
    const { openQueueBoard } = await import('./queue-board.ts');
    return openQueueBoard(deps);
  };
  app.addHook('onClose', async () => (await board?.catch(() => undefined))?.close());
  app.addHook('onRequest', async ({ method }) => {
    if (method === 'GET' || method === 'HEAD') return;
    throw new Refused(405, 'read_only', 'The queues are read-only. Retry assets on the dashboard, or by the API.');
  });
  for (const url of ['/queues', '/queues/*']) {
    app.all(url, { schema: { hide: true } }, async (request, reply) => {
      board ??= open().catch((error) => {
        board = undefined;
        throw error;
      });
      const { routing } = await board;
      for (const [name, value] of Object.entries(reply.getHeaders())) reply.raw.setHeader(name, value!);
      reply.hijack();
      routing(request.raw, reply.raw);
    });
  }
}
