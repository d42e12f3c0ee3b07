import { reasonOf, withCauses } from '../../floor/errors.ts';
import { networkProblem } from '../../floor/network-problem.ts';

/** The database cannot be reached, or is starting or stopping (SQLSTATE 57P01 to 57P03). */
export function isUnreachable(error: unknown): boolean {
  const { code, message } = error as { code?: string; message?: string };
  return (
    /^(ECONN|EPIPE|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOST|ENETUNREACH|57P0[123])/.test(code ?? '') ||
    /^(Connection terminated|timeout expired|timeout exceeded when trying)/.test(message ?? '')
  );
}

/** Why the database of DATABASE_URL cannot be used, and what to do; undefined for an error of another kind. */
export function databaseProblem(error: unknown, url: string): { found: string; remedy: string } | undefined {
  for (const cause of withCauses(error)) {
    const problem = networkProblem(cause);
    if (problem) return { found: problem.found, remedy: problem.remedy('DATABASE_URL') };
    const found = reasonOf(cause);
    const remedy = remedies[(cause as { code?: string }).code ?? ''];
    if (remedy) return { found, remedy };
    if (isUnreachable(cause)) {
      const where = URL.parse(url)?.host ?? '';
      return { found: `no answer from ${where} (${found})`, remedy: 'check the network, or correct DATABASE_URL' };
    }
  }
  return undefined;
}

/** By SQLSTATE. */
const remedies: Record<string, string> = {
  '28000': 'correct the user in DATABASE_URL',
  '28P01': 'correct the user and password in DATABASE_URL',
  '3D000': 'create it, or correct DATABASE_URL',
  '57P03': 'wait until it has started',
};
