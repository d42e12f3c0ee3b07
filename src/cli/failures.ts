/** Nothing answered, or something other than asset-mirror: exit code 3. */
export class NotReachable extends Error {
  override readonly name = 'NotReachable';
}

/** Wrong use of the command line: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** The service refused, with its `detail` as the message: exit code 2 for a wrong request, 3 if it cannot answer now, else 1. */
export class RefusedByService extends Error {
  override readonly name = 'RefusedByService';
  readonly status: number;
  readonly code: string | undefined;

  constructor(message: string, status: number, code: string | undefined) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** A wrong value, or an unknown id. */
const wrongOfTheCaller = new Set([400, 404, 413, 414]);

/** The exit code of the process. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof NotReachable) return 3;
  if (error instanceof RefusedByService) {
    if (error.status >= 502) return 3;
    return wrongOfTheCaller.has(error.status) ? 2 : 1;
  }
  return error instanceof UsageError ? 2 : 1;
}
