import type { FastifyRequest } from 'fastify';
import type { Operator } from '../../floor/roles.ts';
import type { SignInDeps } from './deps.ts';
import type { SignInFailed } from './sign-in-failed.ts';

/** The data of a request that the audit log keeps about a sign-in or sign-out. */
export const requestOf = ({ ip, id }: FastifyRequest) => ({ address: ip, requestId: id });

type Deps = Pick<SignInDeps, 'operations' | 'log'>;

export const recordSignIn = ({ operations }: Deps, request: FastifyRequest, operator: Operator): Promise<void> =>
  operations.audit({ action: 'signIn', ...requestOf(request), operator, status: 200 });

/** Writes a refused sign-in to the log and to the audit log. */
export async function recordRefusal(
  { operations, log }: Deps,
  request: FastifyRequest,
  refusal: Pick<SignInFailed, 'status' | 'message'> & { code: string },
): Promise<void> {
  const { code, status, message: reason } = refusal;
  log.warn({ event: 'sign_in.refused', address: request.ip, code, reason }, 'sign-in refused');
  await operations.audit({ action: 'signIn', ...requestOf(request), operator: undefined, status, code, reason });
}
