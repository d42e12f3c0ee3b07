import { sql } from 'kysely';
import type { Database, Happening, Outcome, Step } from '../database/schema.ts';

/** So many steps of a turn are told: a file that breaks off again and again has more to tell than anybody reads. */
const mostSteps = 60;
/** So many happenings of an asset are told, the last ones; about as many are kept (prune.ts). */
const mostTold = 200;

/** What a worker has done with an asset since its turn began; written together with what came of it. */
export interface Story {
  /** By the database's clock. */
  began: Date;
  /** The same by the monotonic clock. */
  startedAt: number;
  steps: Step[];
  more: number;
}

export function newStory(began: Date): Story {
  return { began, startedAt: performance.now(), steps: [], more: 0 };
}

/** The time by the database's clock, in epoch ms, as far as a worker knows without asking: compare stored times with this. */
export function databaseTime({ story }: { story: Story }): number {
  return story.began.getTime() + performance.now() - story.startedAt;
}

/** Adds a step: what was done, or met. No links and no tokens. */
export function note({ story }: { story: Story }, did: Step['did'], facts: Omit<Step, 'ms' | 'did'> = {}): void {
  if (story.steps.length < mostSteps)
    story.steps.push({ ms: Math.round(performance.now() - story.startedAt), did, ...facts });
  else story.more++;
}

/** What came of a turn. */
export interface TurnEnd {
  outcome: Outcome;
  reason?: string | null;
  /** Comes back after so long. */
  waitMs?: number | null;
}

/** What is told of a turn that ends now. */
export function told(turn: { story: Story }, outcome: TurnEnd) {
  const { startedAt, steps, more } = turn.story;
  const { waitMs } = outcome;
  return {
    outcome: outcome.outcome,
    ...(outcome.reason && { reason: outcome.reason }),
    ...(typeof waitMs === 'number' && { nextAt: new Date(databaseTime(turn) + waitMs) }),
    ms: Math.round(performance.now() - startedAt),
    ...(steps.length > 0 && { steps }),
    ...(more > 0 && { more }),
  };
}

/** The row of a turn that ends, for the assets of the statement's table `given`: that one, if the turn was still its own. */
export const turnRow = (turn: { story: Story }, outcome: TurnEnd) => sql`
  INSERT INTO happenings (asset_id, at, kind, sync_id, data)
  SELECT id, ${turn.story.began}::timestamptz, 'turn', sync_id, ${JSON.stringify(told(turn, outcome))}::jsonb FROM given`;

export function happeningRecords(db: Database) {
  return {
    /** The last of what happened to an asset, oldest first, and whether there was more. */
    async ofAsset(assetId: string): Promise<{ rows: Happening[]; more: boolean }> {
      const rows = await db
        .selectFrom('happenings')
        .select(['at', 'kind', 'syncId', 'data'])
        .where('assetId', '=', assetId)
        .orderBy('id', 'desc')
        .limit(mostTold + 1)
        .execute();
      return { rows: rows.slice(0, mostTold).reverse(), more: rows.length > mostTold };
    },
  };
}
