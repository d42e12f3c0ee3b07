/** The service did not answer at all, or another did: exit code 3. */
export class NotReachable extends Error {
  override readonly name = 'NotReachable';
}

/** A wrong word on the command line: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/**
 * What the service refused, in its words: exit code 2 where what it was asked for is wrong, 3 where it cannot answer at
 * present, else 1. `code` is stable.
 */
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

/** Of a value, or of an id that is not there. */
const wrongOfTheCaller = new Set([400, 404, 413, 414]);

/** With which code the process ends. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof NotReachable) return 3;
  if (error instanceof RefusedByService) {
    if (error.status >= 502) return 3;
    return wrongOfTheCaller.has(error.status) ? 2 : 1;
  }
  return error instanceof UsageError ? 2 : 1;
}
