import { z } from 'zod';
import { roles, signInMethods } from '../../floor/roles.ts';
import type { OperationsDeps } from '../deps.ts';
import { leastRoles, type OperationId } from './permissions.ts';
import type { Asker } from './sessions.ts';

export const meAnswer = z
  .object({
    subject: z.string(),
    name: z.string(),
    role: z.enum(roles),
    method: z.enum(signInMethods),
    sessionId: z.string().nullable(),
    may: z.array(z.string()).describe('The operations that this operator may call.'),
    needs: z.record(z.string(), z.enum(roles)).describe('The other operations, and the least role for each.'),
    grants: z
      .record(z.enum(roles), z.array(z.string()))
      .describe('Values of OIDC_ROLE_CLAIM that give at least this role; empty without a provider.'),
  })
  .meta({ id: 'Me' });

const operations = Object.keys(leastRoles) as OperationId[];

export const meOperations = ({ permissions }: Pick<OperationsDeps, 'permissions'>) => ({
  /** Who asks, and what that operator may do. */
  me: ({ subject, name, role, method, sessionId }: Asker) => ({
    subject,
    name,
    role,
    method,
    sessionId: sessionId ?? null,
    may: operations.filter((operation) => permissions.may({ role }, operation)),
    needs: Object.fromEntries(
      operations
        .filter((operation) => !permissions.may({ role }, operation))
        .map((operation) => [operation, permissions.least(operation)]),
    ),
    grants: permissions.grants(),
  }),
});
