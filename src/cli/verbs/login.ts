import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiClient } from '../client.ts';
import { exitCodeOf, UsageError } from '../failures.ts';
import { paint, print, printJson } from '../output.ts';

/** The saved session of `login`. */
export interface Credentials {
  /** Undefined: there is none. */
  api(): Promise<ApiClient | undefined>;
  /** Returns the path of the file. Undefined forgets the session. */
  save(token: string | undefined): Promise<string>;
}

/** How much longer to wait when the provider says so (RFC 8628, section 3.5). */
const slowDownMs = 5000;

/** The person may still be at the provider, so an outage is waited out until the code expires. */
function pendingIfUnavailable(error: unknown): { pending: true; slowDown: boolean } {
  if (exitCodeOf(error) !== 3) throw error;
  return { pending: true, slowDown: false };
}

/** Signs in at the OpenID provider of the service: the person enters a code there (RFC 8628). */
export async function login(api: ApiClient, credentials: Credentials, { json }: { json?: boolean }): Promise<void> {
  const begun = await api.beginLogin();
  const { url, userCode, intervalMs, expiresAt } = begun;
  if (json) printJson({ url, userCode, expiresAt });
  else print(`Open ${paint('cyan', url)} in a browser, and enter the code ${paint('bold', userCode)}.`);
  let waitMs = intervalMs;
  while (Date.now() + waitMs < Date.parse(expiresAt)) {
    await sleep(waitMs);
    const answer = await api.finishLogin(begun.device).catch(pendingIfUnavailable);
    if ('pending' in answer) {
      if (answer.slowDown) waitMs += slowDownMs;
      continue;
    }
    const file = await credentials.save(answer.token);
    const { name, role } = answer;
    return json ? printJson({ name, role, file }) : print(`Signed in as ${name} (${role}). The session is in ${file}.`);
  }
  throw new UsageError('Nobody entered the code in time. Run `asset-mirror login` again.');
}

/** Ends the session of `login`, and forgets it. */
export async function logout(credentials: Credentials, { json }: { json?: boolean }): Promise<void> {
  const api = await credentials.api();
  const ended = api && (await endOwnSession(api));
  await credentials.save(undefined);
  if (json) printJson({ ended: ended ?? null });
  else print(ended === undefined ? 'There was no session.' : `Signed out ${ended}.`);
}

/** Returns the name of the operator; undefined if the session had ended already. */
async function endOwnSession(api: ApiClient): Promise<string | undefined> {
  try {
    const { sessionId, name } = await api.me();
    if (sessionId !== null) await api.endSession(sessionId);
    return name;
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

/** Shows the operator as whom this program is signed in. */
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
