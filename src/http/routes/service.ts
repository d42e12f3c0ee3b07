import { rotatedKeysAnswer } from '../../operations/encryption-keys.ts';
import type { Operations } from '../../operations/operations.ts';
import { scrubAnswer } from '../../operations/scrub.ts';
import { settingsAnswer, settingsRequest } from '../../operations/settings.ts';
import { statusAnswer } from '../../operations/status.ts';
import { type Api, route } from './route.ts';

export function serviceRoutes(app: Api, operations: Operations): void {
  app.get(
    '/status',
    route('service', 'getStatus', 'Get totals, transfer rate, queue depths and time left', {
      response: { 200: statusAnswer },
    }),
    async () => operations.status(),
  );
  app.get(
    '/scrub',
    route('service', 'getScrub', 'Get the progress of the scrub, and how many requests and bytes it needs', {
      response: { 200: scrubAnswer },
    }),
    async () => operations.scrub(),
  );
  app.get(
    '/settings',
    route('service', 'getSettings', 'Get the settings of all processes', { response: { 200: settingsAnswer } }),
    async () => operations.settings(),
  );
  app.patch(
    '/settings',
    route('service', 'changeSettings', 'Change the settings of all processes; they apply at once', {
      body: settingsRequest,
      response: { 200: settingsAnswer },
    }),
    async (request) => operations.changeSettings(request.body),
  );
  app.post(
    '/keys/rotate',
    route('service', 'rotateKeys', 'Encrypt all tokens and webhook secrets again with the first of ENCRYPTION_KEYS', {
      response: { 200: rotatedKeysAnswer },
    }),
    async () => operations.rotateKeys(),
  );
}
