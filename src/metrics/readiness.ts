import { reasonOf } from '../floor/errors.ts';
import { recent } from '../floor/recent.ts';
import { answerWithin } from '../floor/within.ts';

export type Readiness = ReturnType<typeof createReadiness>;

const checkTimeoutMs = 5000;

/** Whether the dependencies of a process answer. Each of `checks` throws if its dependency does not. */
export function createReadiness(checks: Record<string, () => Promise<void>>) {
  async function checkAll() {
    const results = await Promise.all(
      Object.entries(checks).map(async ([name, check]) => {
        const result = await answerWithin(checkTimeoutMs, () => check()).then(() => 'ok', reasonOf);
        return [name, result] as const;
      }),
    );
    return Object.fromEntries(results);
  }

  return {
    /** `ok` or the reason, by name. The last result is reused for `maxAgeMs`. */
    results: recent(checkAll),
  };
}
