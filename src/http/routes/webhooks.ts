import { deliveryList, deliveryQuery, redeliverAnswer, redeliverRequest } from '../../operations/events/deliveries.ts';
import {
  changedWebhook,
  removedWebhook,
  testedWebhook,
  webhookChange,
  webhookList,
  webhookRequest,
} from '../../operations/events/webhooks.ts';
import { idParams } from '../../operations/fields.ts';
import type { Operations } from '../../operations/operations.ts';
import { refused } from '../openapi.ts';
import { type Api, answering, ofOne, routesOf } from './route.ts';

const route = routesOf('webhooks');

export function webhookRoutes(app: Api, operations: Operations): void {
  app.get('/webhooks', route('listWebhooks', 'List webhook endpoints', answering(webhookList)), async () =>
    operations.webhooks(),
  );
  app.post(
    '/webhooks',
    route('addWebhook', 'Add a webhook endpoint; only this answer contains its secret', {
      body: webhookRequest,
      response: { 201: changedWebhook, ...refused(404) },
    }),
    async (request, reply) => reply.code(201).send(await operations.addWebhook(request.body)),
  );
  app.patch(
    '/webhooks/:id',
    route('changeWebhook', 'Change a webhook endpoint, or make a new secret for it', {
      params: idParams,
      body: webhookChange,
      response: { 200: changedWebhook, ...refused(404, 409) },
    }),
    async (request) => operations.changeWebhook(request.params.id, request.body),
  );
  app.delete(
    '/webhooks/:id',
    route(
      'removeWebhook',
      'Remove a webhook endpoint, the messages that wait for it, and its log',
      ofOne(removedWebhook, 404, 409),
    ),
    async (request) => operations.removeWebhook(request.params.id),
  );
  app.get(
    '/webhooks/:id/deliveries',
    route('listDeliveries', 'List the messages of a webhook endpoint, newest events first', {
      params: idParams,
      querystring: deliveryQuery,
      response: { 200: deliveryList, ...refused(404) },
    }),
    async (request) => operations.deliveries(request.params.id, request.query),
  );
  app.post(
    '/webhooks/:id/redeliver',
    route('redeliver', 'Send one message again, or all failed messages of events since a time', {
      params: idParams,
      body: redeliverRequest,
      response: { 202: redeliverAnswer, ...refused(404, 409) },
    }),
    async (request, reply) => reply.code(202).send(await operations.redeliver(request.params.id, request.body)),
  );
  app.post(
    '/webhooks/:id/test',
    route('testWebhookOf', 'Send a test message to a webhook endpoint, once', ofOne(testedWebhook, 404, 409)),
    async (request) => operations.testWebhookOf(request.params.id),
  );
  app.post(
    '/webhooks/test',
    route('testWebhook', 'Send a test message to the endpoint in WEBHOOK_URL, once', answering(testedWebhook, 409)),
    async () => operations.testWebhook(),
  );
}
