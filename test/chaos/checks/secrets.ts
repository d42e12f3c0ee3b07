import { readFile } from 'node:fs/promises';
import { clientSecret } from '../mirror.ts';
import type { World } from '../world.ts';
import type { Finding } from './finding.ts';
import { type Objects, textOf } from './objects.ts';

const secret = /svc[acrs]_[\w-]{8,}|[?&]signature=\w|Bearer \w/;

export async function secrets(world: World, objects: Objects, there: Map<string, number>): Promise<Finding> {
  const problems: string[] = [];
  for (const name of ['web', 'worker-1', 'worker-2']) {
    const line = (await readFile(world.programs[name]!.log, 'utf8'))
      .split('\n')
      .find((text) => secret.test(text) || text.includes(clientSecret));
    if (line) problems.push(`the log of ${name} has a secret: ${line.slice(0, 200)}`);
  }
  let records = 0;
  for (const key of there.keys()) {
    if (!key.endsWith('.asset.json')) continue;
    records++;
    if (secret.test(await textOf(await objects.read(key)))) problems.push(`${key} has a secret`);
  }
  return { what: 'no token and no signed link was written', seen: `3 logs, ${records} records`, problems };
}
