import { bytesAreExact } from './checks/assets.ts';
import { nothingElse, uploads } from './checks/bucket.ts';
import { downloads } from './checks/downloads.ts';
import type { Finding, Row } from './checks/finding.ts';
import type { Happened } from './checks/history.ts';
import { marks, readMarks } from './checks/marks.ts';
import { openObjects } from './checks/objects.ts';
import { secrets } from './checks/secrets.ts';
import { tokens } from './checks/tokens.ts';
import type { World } from './world.ts';

/**
 * The final check. It reads bucket, database and library with its own clients, computes the expected content, and uses no code
 * of the mirror.
 */
export async function check(world: World, history: Happened[]): Promise<Finding[]> {
  const rows = await world.query<Row>('SELECT * FROM assets');
  const objects = openObjects(world);
  const there = new Map<string, number>();
  for (const { key, bytes } of await objects.list()) there.set(key, bytes);
  return [
    await bytesAreExact(world, rows, objects, there),
    await nothingElse(world, rows, there),
    await uploads(rows, objects, history),
    downloads(world, rows, history),
    await tokens(world, history),
    marks(await readMarks(world), world.content.dates, world.content.held, 'at the end'),
    await secrets(world, objects, there),
    surprises(world),
  ];
}

function surprises(world: World): Finding {
  const programs = Object.values(world.programs);
  return {
    what: 'no process exited by itself',
    seen: `${programs.length} processes`,
    problems: programs.flatMap((program) => program.surprises),
  };
}
