import { CommanderError } from 'commander';
import { ConfigurationError, fullReasonOf, NamedError } from '../floor/errors.ts';

/** Nothing answered, or something other than asset-mirror: exit code 3. */
export class NotReachable extends NamedError {}

/** Wrong use of the command line: exit code 2. */
export class UsageError extends NamedError {}

/** A problem document of asset-mirror (RFC 9457): the fields that verbs need. */
export interface Problem {
  status: number;
  code?: string | undefined;
  detail: string;
  /** Of a wrong request: each wrong field. */
  errors?: { detail: string }[] | undefined;
}

/** asset-mirror refused the request: exit code 2 for a wrong request, 3 if it cannot answer now, else 1. */
export class RefusedByService extends NamedError {
  readonly problem: Problem;

  constructor(problem: Problem, message = problem.detail) {
    super(message);
    this.problem = problem;
  }
}

/** The service may answer later. */
export const isAway = (error: unknown): boolean =>
  error instanceof NotReachable || (error instanceof RefusedByService && error.problem.status >= 500);

/** A wrong value, an unknown id, or a missing setting. */
const wrongOfTheCaller = new Set<number | string | undefined>([400, 404, 413, 414, 'webhook_not_configured']);

/** The exit code of the process. 0 if commander ends the command without a failure, as for --help. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof NotReachable) return 3;
  if (error instanceof RefusedByService) {
    const { status, code } = error.problem;
    if (status >= 502) return 3;
    return wrongOfTheCaller.has(status) || wrongOfTheCaller.has(code) ? 2 : 1;
  }
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  return error instanceof UsageError || error instanceof ConfigurationError ? 2 : 1;
}

/** The JSON that `--json` prints for an error: the problem that asset-mirror returned, or an object of the same form. */
export function problemOf(error: unknown): object {
  if (error instanceof RefusedByService) return error.problem;
  if (error instanceof ConfigurationError) {
    const detail = [...error.problems, error.remedy].filter(Boolean).join(' ');
    return { code: 'wrong_configuration', detail, problems: error.problems };
  }
  const code =
    error instanceof NotReachable
      ? 'not_reachable'
      : error instanceof UsageError || error instanceof CommanderError
        ? 'wrong_usage'
        : 'unexpected_error';
  return { code, detail: fullReasonOf(error).replace(/^error: /, '') };
}
