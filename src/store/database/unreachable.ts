/** The database cannot be reached, or is starting or stopping (SQLSTATE 57P01 to 57P03). */
export function isAway(error: unknown): boolean {
  const { code, message } = error as { code?: string; message?: string };
  return (
    /^(ECONN|EPIPE|57P0)/.test(code ?? '') ||
    /^(Connection terminated|timeout expired|timeout exceeded when trying)/.test(message ?? '')
  );
}
