import cookie from '@fastify/cookie';
import type { FastifyInstance } from 'fastify';
import { logLineOf, toHttpError } from '../http-error.ts';
import { registerAuthorize } from '../oauth/authorize.ts';
import type { Service } from '../service.ts';
import { sendPage } from './layout.ts';
import { problemPage } from './pages.ts';
import { registerProfile } from './profile.ts';
import { Sessions } from './sessions.ts';
import { registerSignIn } from './sign-in.ts';

/** Everything that users see in a browser. Its errors are pages. */
export function registerPages(server: FastifyInstance, service: Service): void {
  server.register(async (scope) => {
    await scope.register(cookie);
    scope.setErrorHandler((error, _request, reply) => {
      const { status, message } = toHttpError(error);
      if (status >= 500) service.log(logLineOf(error));
      sendPage(reply, problemPage(status, 'This did not work', message));
    });
    const sessions = new Sessions(service);
    registerAuthorize(scope, service, sessions);
    registerSignIn(scope, service, sessions);
    registerProfile(scope, service, sessions);
  });
}
