import { scrubAnswer } from '../../operations/assurance/scrub.ts';
import type { Operations } from '../../operations/operations.ts';
import { rotatedKeysAnswer } from '../../operations/operators/encryption-keys.ts';
import { settingsAnswer, settingsRequest } from '../../operations/status/settings.ts';
import { statusAnswer } from '../../operations/status/status.ts';
import { type Api, answering, routesOf } from './route.ts';

const route = routesOf('service');

export function serviceRoutes(app: Api, operations: Operations): void {
  app.get(
    '/status',
    route('getStatus', 'Get totals, transfer rate, queue depths and time left', answering(statusAnswer)),
    async () => operations.status(),
  );
  app.get(
    '/scrub',
    route(
      'getScrub',
      'Get the progress of the scrub, and how many requests and bytes it needs',
      answering(scrubAnswer),
    ),
    async () => operations.scrub(),
  );
  app.get('/settings', route('getSettings', 'Get the settings of all processes', answering(settingsAnswer)), async () =>
    operations.settings(),
  );
  app.patch(
    '/settings',
    route('changeSettings', 'Change the settings of all processes; they apply at once', {
      body: settingsRequest,
      response: { 200: settingsAnswer },
    }),
    async (request) => operations.changeSettings(request.body),
  );
  app.post(
    '/keys/rotate',
    route(
      'rotateKeys',
      'Encrypt all tokens and webhook secrets again with the first of ENCRYPTION_KEYS',
      answering(rotatedKeysAnswer),
    ),
    async () => operations.rotateKeys(),
  );
}
