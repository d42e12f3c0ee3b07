import { type Check, Failure, NotTried } from './check.ts';
import type { World } from './world.ts';

export type Outcome = {
  id: string;
  section: string;
  says: string;
  outcome: 'passed' | 'failed' | 'not tried';
  /** Why a check failed. */
  expected?: string;
  found?: string;
  /** Why a check was skipped. */
  why?: string;
  /** What the service does where the specification leaves a choice. */
  observed: string[];
  ms: number;
};

/** Runs the checks one after the other: they share a connection and, with an admin API, a clock. */
export async function run(
  world: World,
  checks: Check[],
  done: (outcome: Outcome) => void = () => {},
): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const check of checks) {
    const outcome = await runOne(world, check);
    outcomes.push(outcome);
    done(outcome);
  }
  return outcomes;
}

async function runOne(world: World, { id, section, says, run }: Check): Promise<Outcome> {
  const startedAt = performance.now();
  const result = await run(world).then(() => ({ outcome: 'passed' as const }), failed);
  const observed = [...new Set(world.observed())].map(withoutSecrets);
  return { id, section, says, ...result, observed, ms: Math.round(performance.now() - startedAt) };
}

function failed(error: unknown): Pick<Outcome, 'outcome' | 'expected' | 'found' | 'why'> {
  if (error instanceof NotTried) return { outcome: 'not tried', why: error.message };
  const { expected, found } = error instanceof Failure ? error : { expected: 'an answer', found: storyOf(error) };
  return { outcome: 'failed', expected: withoutSecrets(expected), found: withoutSecrets(found) };
}

function storyOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause === undefined ? String(message || error) : `${message}: ${storyOf(cause)}`;
}

/** Removes tokens, codes and signatures: reports are published. */
function withoutSecrets(text: string): string {
  return text
    .replace(/svc([acrs])_[\w-]{6,}/g, 'svc$1_…')
    .replace(/([?&](?:code|[\w-]*sig(?:nature)?|[\w-]*token|[\w-]*credential)=)[^&\s"]+/gi, '$1…');
}
