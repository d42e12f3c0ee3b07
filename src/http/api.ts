import type { FastifyInstance } from 'fastify';
import type { Operations } from '../operations/operations.ts';
import type { EventStreams } from './event-stream.ts';
import { assetRoutes } from './routes/assets.ts';
import { changeRoutes } from './routes/changes.ts';
import { connectionRoutes } from './routes/connections.ts';
import { eventRoutes } from './routes/events.ts';
import { removalRoutes } from './routes/removals.ts';
import { typed } from './routes/route.ts';
import { serviceRoutes } from './routes/service.ts';
import { syncRoutes } from './routes/syncs.ts';
import { verificationRoutes } from './routes/verification.ts';
import { webhookRoutes } from './routes/webhooks.ts';
import type { FileSender } from './send-file.ts';

/** The operator API: each route calls one operation. */
export function apiRoutes(
  plain: FastifyInstance,
  { operations, streams, sender }: { operations: Operations; streams: EventStreams; sender: FileSender },
): void {
  const app = typed(plain);
  serviceRoutes(app, operations);
  connectionRoutes(app, operations);
  assetRoutes(app, operations, sender);
  syncRoutes(app, operations);
  eventRoutes(app, operations, streams);
  changeRoutes(app, operations);
  verificationRoutes(app, operations);
  removalRoutes(app, operations);
  webhookRoutes(app, operations);
}
