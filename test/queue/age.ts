import type { Stage } from '../support/stage.ts';

/** Makes all jobs on the queue a minute older. */
export async function age(stage: Stage, by = "interval '1 minute'"): Promise<void> {
  await stage.query(`UPDATE assets SET queued_at = queued_at - ${by} WHERE queued_at IS NOT NULL`);
  await stage.query("UPDATE syncs SET requested_at = requested_at - interval '1 minute'");
}
