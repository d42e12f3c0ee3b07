import { formatDuration } from '../../floor/units.ts';
import type { Sync } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { findOptional } from '../find-connection.ts';
import { agoShort, type Cell, harmless, number, paint, print, printJson, table } from '../output.ts';

const colours = { waiting: 'dim', running: 'cyan', done: 'green', failed: 'red' } as const;

/** Lists syncs, newest first. Below a sync: why it failed, or which items were unreadable. */
export async function syncs(
  api: ApiClient,
  options: { connection?: string; limit: number; json?: boolean },
): Promise<void> {
  const page = await api.syncs({ connectionId: await findOptional(api, options.connection), limit: options.limit });
  if (options.json) return printJson(page);
  if (page.syncs.length === 0) return print('No syncs yet.');
  const rows = page.syncs.map((sync): Cell[] => [
    sync.id,
    sync.mode + (Object.keys(sync.scope).length > 0 ? ' (partial)' : ''),
    { text: sync.status, style: colours[sync.status] },
    agoShort(sync.requestedAt),
    durationOf(sync),
    number(sync.pages),
    number(sync.seen),
    number(sync.new),
    number(sync.changed),
    number(sync.gone),
  ]);
  const title = (text: string, spare?: number) => ({ title: text, right: true, ...(spare && { spare }) });
  const [head, ...lines] = table(
    [
      { title: 'SYNC' },
      { title: 'MODE' },
      { title: 'STATUS' },
      { title: 'REQUESTED', spare: 1 },
      title('DURATION', 4),
      title('PAGES', 5),
      title('SEEN', 3),
      title('NEW'),
      title('CHANGED'),
      title('GONE', 2),
    ],
    rows,
  ).split('\n');
  print(head);
  for (const [n, { status, error }] of page.syncs.entries()) {
    print(lines[n]);
    if (error) print(`    ${paint(status === 'failed' ? 'red' : 'yellow', harmless(error))}`);
  }
}

function durationOf({ startedAt, finishedAt }: Sync): string {
  if (startedAt === null) return '';
  return formatDuration((finishedAt === null ? Date.now() : Date.parse(finishedAt)) - Date.parse(startedAt));
}
