import { reasonOf } from './errors.ts';

export type Readiness = ReturnType<typeof createReadiness>;

const checkTimeoutMs = 5000;

/** Whether what a process rests on answers: each of `checks` throws when it does not. */
export function createReadiness(checks: Record<string, () => Promise<void>>) {
  let last: { at: number; answer: Promise<{ ready: boolean; checks: Record<string, string> }> } | undefined;

  async function ask() {
    const results = await Promise.all(
      Object.entries(checks).map(async ([name, check]) => {
        let timer: NodeJS.Timeout | undefined;
        const late = new Promise<never>((_, reject) => {
          timer = setTimeout(() => reject(new Error(`no answer within ${checkTimeoutMs / 1000} s`)), checkTimeoutMs);
        });
        try {
          await Promise.race([check(), late]);
          return [name, 'ok'] as const;
        } catch (error) {
          return [name, reasonOf(error)] as const;
        } finally {
          clearTimeout(timer);
        }
      }),
    );
    return { ready: results.every(([, result]) => result === 'ok'), checks: Object.fromEntries(results) };
  }

  return {
    /** `ok`, or why not, by name; a look that is no older than `maxAgeMs` will do. */
    look(maxAgeMs: number) {
      if (!last || last.at < performance.now() - maxAgeMs) last = { at: performance.now(), answer: ask() };
      return last.answer;
    },
  };
}
