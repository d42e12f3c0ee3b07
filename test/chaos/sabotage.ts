import { readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Row } from './checks/finding.ts';
import { workshop } from './checks/objects.ts';
import type { World } from './world.ts';

/** Damages the copy in every way that the check must find. */
export async function sabotage(world: World): Promise<void> {
  const { rows } = {
    rows: await world.query<Row>("SELECT * FROM assets WHERE state = 'mirrored' AND bytes > 0 ORDER BY id"),
  };
  const [changed, lost, renamed, forgotten] = rows as [Row, Row, Row, Row];
  const file = (key: string) => join(world.disk, key);
  const bytes = await readFile(file(changed.media!.key));
  bytes[bytes.length - 1]! ^= 1;
  await writeFile(file(changed.media!.key), bytes);
  await rm(file(lost.media!.key));
  await writeFile(file(`${changed.company_id}/stray`), 'stray');
  const record = await readFile(file(renamed.record_key!), 'utf8');
  await writeFile(file(renamed.record_key!), record.replace(/"name": "/, '"name": "not '));
  await world.query('DELETE FROM assets WHERE id = $1', [forgotten.id]);
}

/** Makes drafts of dead processes old enough for the sweep. */
export async function ageDrafts(world: World): Promise<void> {
  if (world.bucket) return;
  const longAgo = new Date(Date.now() - 8 * 24 * 3_600_000);
  for (const name of await readdir(join(world.disk, workshop)))
    await utimes(join(world.disk, workshop, name), longAgo, longAgo);
}
