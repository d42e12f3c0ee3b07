import type { ApiClient } from '../client.ts';
import { counted, paint, print, printJson } from '../output.ts';

/** Encrypts all tokens and webhook secrets with the first key. Returns how many could not be read. */
export async function rotateKeys(api: ApiClient, options: { json?: boolean }): Promise<number> {
  const done = await api.rotateKeys();
  const { key, rotated, already, unreadable } = done;
  if (options.json) printJson(done);
  else {
    print(
      `${paint('bold', counted(rotated, 'secret'))} encrypted again with the key ${key}; ${already} already used it.`,
    );
    for (const { name, reason } of unreadable) print(`  ${paint('red', '✗')} ${name}: ${reason}`);
    if (unreadable.length > 0) {
      print(`Not changed because unreadable: ${counted(unreadable.length, 'secret')}.`);
    } else if (rotated + already > 0) {
      print(
        'Nothing stored needs the other keys. Keep them for 7 more days if connect links made with them must still work.',
      );
    }
  }
  return unreadable.length;
}
