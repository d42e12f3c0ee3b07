import { z } from 'zod';
import { redact } from '../../floor/errors.ts';
import { hasRole, type Operator, roles, signInMethods } from '../../floor/roles.ts';
import type { Session } from '../../store/database/schema.ts';
import type { OperationsDeps } from '../deps.ts';
import { isoTimes, time } from '../fields.ts';
import { Refused } from '../refused.ts';

const role = z.enum(roles);

const sessionAnswer = z
  .object({
    id: z.string(),
    subject: z.string().describe('Identifies the account at the provider.'),
    name: z.string(),
    role,
    method: z.enum(signInMethods),
    address: z.string().describe('The IP address that signed in.'),
    userAgent: z.string().nullable(),
    createdAt: time,
    lastUsedAt: time,
    endsAt: time.describe('When it ends at the latest. It ends earlier if it is not used for SESSION_IDLE.'),
    isThis: z.boolean().describe('The session that sends this request.'),
  })
  .meta({ id: 'Session' });
export const sessionList = z.object({ sessions: z.array(sessionAnswer) }).meta({ id: 'SessionList' });
export const endedSession = z.object({ id: z.string() }).meta({ id: 'EndedSession' });

/** The operator who asks, and the session. */
export type Asker = Operator & { sessionId?: string };

/** Without the hash, which is not in the schema. */
const shown = (session: Session, asker: Asker) =>
  sessionAnswer.parse({ ...isoTimes(session), isThis: session.id === asker.sessionId });

export function sessionOperations({ store, signIn }: Pick<OperationsDeps, 'store' | 'signIn'>) {
  const { sessionIdle } = signIn;
  const isAdmin = (asker: Asker) => hasRole(asker, 'admin');
  // An account may have any subject, also that of ADMIN_TOKEN.
  const isOwn = ({ subject, method }: Session, asker: Asker) =>
    subject === asker.subject && (method === 'admin_token') === (asker.method === 'admin_token');

  /** A session of the asker; for an admin, any session. */
  async function session(id: string, asker: Asker) {
    const found = await store.sessions.get(id, sessionIdle);
    return found && (isAdmin(asker) || isOwn(found, asker)) ? shown(found, asker) : undefined;
  }

  return {
    session,

    /** Own sessions; an admin sees all. */
    async sessions(asker: Asker) {
      const found = await store.sessions.list(sessionIdle, isAdmin(asker) ? undefined : asker.subject);
      const visible = found.filter((one) => isAdmin(asker) || isOwn(one, asker));
      return { sessions: visible.map((one) => shown(one, asker)) };
    },

    /** Ends an own session; an admin ends any. @throws Refused 404 */
    async endSession(id: string, asker: Asker) {
      if (!(await session(id, asker))) {
        throw new Refused(404, 'session_not_found', `There is no session ${redact(id)}. It may have ended.`);
      }
      await store.sessions.end(id);
      return { id };
    },
  };
}
