import type { FastifyInstance } from 'fastify';
import type { Operations } from '../operations/operations.ts';
import type { Permissions } from '../operations/operators/permissions.ts';
import type { EventStreams } from './event-stream.ts';
import { accessRoutes } from './routes/access.ts';
import { assetFileRoutes, assetRoutes } from './routes/assets.ts';
import { connectionRoutes } from './routes/connections.ts';
import { eventRoutes } from './routes/events.ts';
import { removalRoutes } from './routes/removals.ts';
import { typed } from './routes/route.ts';
import { serviceRoutes } from './routes/service.ts';
import { syncRoutes } from './routes/syncs.ts';
import { verificationRoutes } from './routes/verification.ts';
import { webhookRoutes } from './routes/webhooks.ts';
import type { FileSender } from './send-file.ts';

interface ApiDeps {
  operations: Operations;
  permissions: Permissions;
  streams: EventStreams;
  sender: FileSender;
}

/** The operator API: each route calls one operation. */
export function apiRoutes(plain: FastifyInstance, { operations, permissions, streams, sender }: ApiDeps): void {
  const app = typed(plain);
  serviceRoutes(app, operations);
  connectionRoutes(app, operations, permissions);
  assetRoutes(app, operations, permissions);
  assetFileRoutes(app, sender);
  syncRoutes(app, operations);
  eventRoutes(app, operations, streams);
  verificationRoutes(app, operations);
  removalRoutes(app, operations);
  webhookRoutes(app, operations);
  accessRoutes(app, operations);
}
