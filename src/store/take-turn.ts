import { randomUUID } from 'node:crypto';
import { readFile, rm, stat, writeFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/** Turns of this process, which in a container has the number of the one before it. */
const turns = new Set<string>();

/**
 * Of processes that come at once one has its turn, and the others wait for its end, by a file at `path`. One whose process is
 * gone, or that takes longer than `mostMs`, holds nobody up. Returns how to end it.
 */
export async function takeTurn(path: string, mostMs: number): Promise<() => Promise<void>> {
  const mine = `${process.pid} ${randomUUID()}`;
  turns.add(mine);
  for (;;) {
    try {
      await writeFile(path, mine, { flag: 'wx' });
      return async () => {
        await rm(path, { force: true });
        turns.delete(mine);
      };
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const theirs = await readFile(path, 'utf8').catch(() => '');
    const since = await stat(path).then(
      ({ mtimeMs }) => mtimeMs,
      () => Date.now(),
    );
    if (hasEnded(theirs) || Date.now() - since > mostMs) await rm(path, { force: true });
    else await sleep(100);
  }
}

function hasEnded(turn: string): boolean {
  const pid = Number(turn.split(' ')[0]);
  if (!(pid > 0)) return false;
  if (pid === process.pid) return !turns.has(turn);
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
