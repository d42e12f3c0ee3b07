import type { Stage } from '../support/stage.ts';

/** Leases all due assets; returns which of these were among them. */
export async function dispatched(stage: Stage, ...ids: string[]): Promise<string[]> {
  const due = (await stage.store.assets.dispatch({ perConnection: 1000 }))!;
  return due.map((asset) => asset.id).filter((id) => ids.includes(id));
}
