import type { ApiClient } from '../client.ts';
import { paint, print, printJson } from '../output.ts';

/** Has all tokens sealed with the first key. Returns how many could not be. */
export async function rotateKeys(api: ApiClient, options: { json?: boolean }): Promise<number> {
  const done = await api.rotateKeys();
  const { key, rotated, already, unreadable } = done;
  if (options.json) printJson(done);
  else {
    const connections = (n: number) => `${n} ${n === 1 ? 'connection' : 'connections'}`;
    print(`${paint('bold', connections(rotated))} sealed again with the key ${key}, ${already} had it already.`);
    for (const { connectionId, reason } of unreadable) print(`  ${paint('red', '✗')} ${connectionId}: ${reason}`);
    if (unreadable.length > 0) {
      print(`${connections(unreadable.length)} could not be read, and nothing of that was changed.`);
    } else if (rotated + already > 0) {
      print('No token needs another key. Connect links made with one work while it is kept, for 7 days at most.');
    }
  }
  return unreadable.length;
}
