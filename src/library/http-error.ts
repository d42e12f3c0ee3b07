/** An error that is sent to the client as {error, message}. */
export class HttpError extends Error {
  readonly status: number;
  readonly code: string;
  readonly headers: Record<string, string>;

  constructor(status: number, code: string, message: string, headers: Record<string, string> = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.headers = headers;
  }
}

/** Errors of the framework, such as a malformed body, keep their status. Anything else is a 500. */
export function toHttpError(error: unknown): HttpError {
  if (error instanceof HttpError) return error;
  const status = (error as { statusCode?: number }).statusCode;
  if (status !== undefined && status < 500) return new HttpError(status, 'invalid_request', (error as Error).message);
  return new HttpError(500, 'server_error', 'The library failed to answer this request.');
}

/** What is logged about an error that is not the client's fault. */
export function logLineOf(error: unknown): { error: string } {
  return { error: error instanceof Error ? (error.stack ?? error.message) : String(error) };
}
