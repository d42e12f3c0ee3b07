import { z } from 'zod';
import { hasRole, type Operator, roles, signInMethods } from '../roles.ts';
import type { Session } from '../store/database/schema.ts';
import type { OperationsDeps } from './deps.ts';
import { time } from './fields.ts';
import { Refused } from './refused.ts';

const role = z.enum(roles);

const sessionAnswer = z
  .object({
    id: z.string(),
    subject: z.string().describe('Identifies the account at the provider.'),
    name: z.string(),
    role,
    method: z.enum(signInMethods),
    address: z.string().describe('Where it began.'),
    userAgent: z.string().nullable(),
    createdAt: time,
    lastUsedAt: time,
    endsAt: time.describe('It ends earlier if it is not used for SESSION_IDLE.'),
    isThis: z.boolean().describe('The session that sends this request.'),
  })
  .meta({ id: 'Session' });
export const sessionList = z.object({ sessions: z.array(sessionAnswer) }).meta({ id: 'SessionList' });
export const endedSession = z.object({ id: z.string() }).meta({ id: 'EndedSession' });

/** Who asks, and with which session. */
export type Asker = Operator & { sessionId?: string };

const shown = (session: Session, asker: Asker) => ({
  id: session.id,
  subject: session.subject,
  name: session.name,
  role: session.role,
  method: session.method,
  address: session.address,
  userAgent: session.userAgent,
  createdAt: session.createdAt.toISOString(),
  lastUsedAt: session.lastUsedAt.toISOString(),
  endsAt: session.endsAt.toISOString(),
  isThis: session.id === asker.sessionId,
});

export function sessionOperations({ store, sessionIdle }: Pick<OperationsDeps, 'store' | 'sessionIdle'>) {
  /** Own sessions; an admin sees all. */
  async function visible(asker: Asker): Promise<Session[]> {
    return store.sessions.list(sessionIdle, hasRole(asker, 'admin') ? undefined : asker.subject);
  }

  return {
    async sessions(asker: Asker) {
      return { sessions: (await visible(asker)).map((session) => shown(session, asker)) };
    },

    /** Ends an own session; an admin ends any. @throws Refused 404 */
    async endSession(id: string, asker: Asker) {
      if (!(await visible(asker)).some((session) => session.id === id)) {
        throw new Refused(404, 'session_not_found', `There is no session ${id}. It may have ended.`);
      }
      await store.sessions.end(id);
      return { id };
    },
  };
}
