import pg from 'pg';
import type { Scene } from '../support/scene.ts';

/** A line of the report of a verification. */
export interface Line {
  mark: string;
  key: string | null;
  assetId: string | null;
  kind: string | null;
  text: string | null;
  difference: boolean;
}

/** In the order of ids, as all statements lock several assets: otherwise a deadlock with a worker would be possible. */
export const settleLongAgo = `
  WITH locked AS (SELECT id FROM assets ORDER BY id FOR UPDATE)
  UPDATE assets SET settled_at = now() - interval '1 hour' FROM locked WHERE assets.id = locked.id`;

/** A client of the database of a scene. */
export const connectTo = async (scene: Scene): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString: scene.ground.environment.DATABASE_URL });
  await client.connect();
  return client;
};
