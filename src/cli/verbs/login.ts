import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiClient } from '../client.ts';
import { RefusedByService } from '../failures.ts';
import { paint, print, printJson } from '../output.ts';

/** Where `login` keeps the token of the session. */
export interface Credentials {
  /** Returns the path of the file. */
  save(token: string | undefined): Promise<string>;
}

/** Signs in at the OpenID provider of the service: the person enters a code there (RFC 8628). */
export async function login(api: ApiClient, credentials: Credentials, { json }: { json?: boolean }): Promise<void> {
  const begun = await api.beginLogin();
  const { url, userCode, intervalMs, expiresAt } = begun;
  if (json) printJson({ url, userCode, expiresAt });
  else print(`Open ${paint('cyan', url)} in a browser, and check that it shows the code ${paint('bold', userCode)}.`);
  while (Date.now() < Date.parse(expiresAt)) {
    await sleep(intervalMs);
    const answer = await api.finishLogin(begun.device);
    if ('pending' in answer) continue;
    const file = await credentials.save(answer.token);
    const { name, role } = answer;
    return json ? printJson({ name, role, file }) : print(`Signed in as ${name} (${role}). The session is in ${file}.`);
  }
  throw new RefusedByService({
    status: 400,
    code: 'sign_in_expired',
    detail: 'Nobody signed in in time. Run it again.',
  });
}

/** Ends the session of `login`, and forgets it. */
export async function logout(api: ApiClient, credentials: Credentials, { json }: { json?: boolean }): Promise<void> {
  const { sessionId, name } = await api.me();
  if (sessionId !== null) await api.endSession(sessionId);
  await credentials.save(undefined);
  if (json) printJson({ ended: sessionId });
  else print(sessionId === null ? 'There was no session; nothing is saved.' : `Signed out ${name}.`);
}

/** Shows who the service takes this program for. */
export async function whoami(api: ApiClient, { json }: { json?: boolean }): Promise<void> {
  const me = await api.me();
  if (json) return printJson(me);
  const methods = {
    admin_token: 'with ADMIN_TOKEN',
    api_token: 'with an API token',
    oidc: 'at the provider',
    device: 'at the provider',
  };
  print(`${me.name}, role ${paint('bold', me.role)}, signed in ${methods[me.method]}.`);
}
