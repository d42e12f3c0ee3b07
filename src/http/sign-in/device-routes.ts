import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { Refused } from '../../operations/refused.ts';
import { openJson, sealJson } from '../sealed-json.ts';
import type { SignInDeps } from './deps.ts';
import type { SignInLimit } from './limit.ts';
import type { Provider } from './provider.ts';
import { recordRefusal, recordSignIn } from './sign-in-entries.ts';
import { SignInFailed } from './sign-in-failed.ts';

const purpose = 'device sign-in';
const pending = z.object({ deviceCode: z.string(), until: z.number() });
const poll = z.object({ device: z.string().max(4000) });

/** Sign-in in a terminal, with a code that the person enters at the provider (RFC 8628): `asset-mirror login`. */
export function deviceRoutes(
  app: FastifyInstance,
  deps: SignInDeps & { provider: Provider; limit: SignInLimit },
): void {
  const { provider, sealer, sessions } = deps;
  const refused = (error: unknown) =>
    error instanceof SignInFailed ? new Refused(error.status, error.code, error.message) : error;

  app.post('/sign-in/device', { schema: { hide: true } }, async (request) => {
    await deps.limit(request);
    const answer = await provider.beginDevice().catch((error) => {
      throw refused(error);
    });
    const until = Date.now() + answer.expires_in * 1000;
    return {
      device: sealJson(sealer, purpose, { deviceCode: answer.device_code, until }),
      userCode: answer.user_code,
      // Not `verification_uri_complete`, which has the code: people must compare and type it.
      url: answer.verification_uri,
      intervalMs: (answer.interval ?? 5) * 1000,
      expiresAt: new Date(until).toISOString(),
    };
  });

  app.post('/sign-in/device/token', { schema: { hide: true } }, async (request, reply) => {
    await deps.limit(request);
    const { deviceCode } = opened(request.body);
    try {
      const operator = await provider.finishDevice(deviceCode);
      if ('pending' in operator) return reply.code(202).send(operator);
      await recordSignIn(deps, request, operator);
      const { name, role } = operator;
      return { token: await sessions.beginInTerminal(request, operator), name, role };
    } catch (error) {
      if (error instanceof SignInFailed) await recordRefusal(deps, request, error);
      throw refused(error);
    }
  });

  function opened(body: unknown): z.infer<typeof pending> {
    const found = openJson(sealer, purpose, pending, poll.safeParse(body).data?.device);
    if (found && found.until > Date.now()) return found;
    throw new Refused(400, 'sign_in_invalid', 'This sign-in has expired. Run `asset-mirror login` again.');
  }
}
