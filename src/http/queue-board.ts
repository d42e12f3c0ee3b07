import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { FastifyAdapter } from '@bull-board/fastify';
import fastify, { type FastifyInstance } from 'fastify';
import { fieldsHere, type Log } from '../floor/log.ts';
import type { Queues } from '../queue/queues.ts';
import { escapeHtml } from './pages.ts';
import { notFound, problemHandler, problemOf } from './problems.ts';

const descriptions = {
  syncs: 'Syncs, at most one per connection at a time.',
  assets: 'Assets to be transferred or checked. A job has only the id; the dashboard shows the asset.',
} as const;

/**
 * The content security policy of its page. `unsafe-inline` is for styles on this path only: the page's scripts create style
 * elements for notices and menus.
 */
const policy =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'self'; " +
  "form-action 'none'; frame-ancestors 'none'";

/** The board shows its links only in a menu, so the page has this one. */
const backLink = (base: string) => `<a class="back" href="${escapeHtml(base)}/">‹ Back to the dashboard</a>`;
const backStyle = `<style>
.back { position: fixed; z-index: 99; right: 1rem; bottom: 1rem; padding: 0.5rem 1rem; border-radius: 8px;
  background: #2563d9; color: #fff; font: 600 0.9375rem/1.5 system-ui, sans-serif; text-decoration: none }
#root { padding-bottom: 4rem }
</style>`;

/**
 * bull-board for both queues, read-only: jobs are made from the records, so changing them would have no lasting effect. It is a
 * separate app below `/queues`. `base` is the path of PUBLIC_URL.
 */
export async function openQueueBoard(deps: {
  queues: Pick<Queues, 'syncs' | 'assets'>;
  log: Log;
  base: string;
}): Promise<FastifyInstance> {
  // The request has its id already.
  const app = fastify({ genReqId: () => String(fieldsHere().requestId) });
  app.setErrorHandler(problemHandler(deps.log));
  app.setNotFoundHandler(notFound);
  const icon = `${deps.base}/dashboard/icon.svg`;
  const adapter = new FastifyAdapter();
  adapter.setBasePath(`${deps.base}/queues`);
  createBullBoard({
    serverAdapter: adapter,
    queues: (['syncs', 'assets'] as const).map((name) => {
      const queue = new BullMQAdapter(deps.queues[name] as never, {
        readOnlyMode: true,
        description: descriptions[name],
      });
      queue.setFormatter(
        'name',
        ({ name, data }: { name: string; data?: { connectionId?: string; assetId?: string } }) =>
          [name, data?.assetId ?? data?.connectionId].filter(Boolean).join(' '),
      );
      return queue;
    }),
    options: {
      uiConfig: {
        boardTitle: 'asset-mirror queues',
        boardLogo: { path: icon, width: 24, height: 24 },
        favIcon: { default: icon, alternative: icon },
        hideDocsLink: true,
        locale: { lng: 'en-US' },
      },
    },
  });
  adapter.setErrorHandler((error) => {
    const { status, ...body } = problemOf(error, deps.log, { requestId: String(fieldsHere().requestId) });
    return { status: status as 500, body: { ...body, status, error: body.detail } as never };
  });
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers({
      'content-security-policy': policy,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'same-origin',
    });
  });
  app.addHook('onSend', async (_request, reply, payload) => {
    if (!String(reply.getHeader('content-type')).startsWith('text/html') || typeof payload !== 'string') return payload;
    reply.header('cache-control', 'no-store');
    return (
      payload
        // A font from another host.
        .replace(/<link href="https:[^>]*>/g, '')
        .replace('</head>', `${backStyle}</head>`)
        .replace('<div id="root">', `${backLink(deps.base)}<div id="root">`)
    );
  });
  await app.register(adapter.registerPlugin() as never, { prefix: '/queues' });
  await app.ready();
  return app;
}
