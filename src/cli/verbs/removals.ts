import { heldText } from '../../floor/held-changes.ts';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Answer, Asked } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { UsageError } from '../failures.ts';
import { findConnection } from '../find-connection.ts';
import { ago, counted, harmless, paint, print, printJson, table } from '../output.ts';

/** Shows what is removed in the next week. */
export async function removals(api: ApiClient, { json }: { json?: boolean }): Promise<void> {
  const found = await api.removals();
  if (json) return printJson(found);
  print(describe(found));
}

function describe({ goneRetentionSeconds, nextWeek, heldCompanies }: Answer<'removals'>): string {
  if (goneRetentionSeconds === null)
    return 'Assets deleted in the library stay in the bucket (GONE_RETENTION=forever).';
  const lines = [
    `Assets deleted in the library are removed from the bucket after ${formatDuration(goneRetentionSeconds * 1000)}.`,
    nextWeek.assets === 0
      ? 'None in the next 7 days.'
      : `In the next 7 days: ${counted(nextWeek.assets, 'asset')}, ${formatBytes(nextWeek.bytes)}.`,
  ];
  if (nextWeek.first.length > 0) {
    const rows = nextWeek.first.map(({ id, name, bytes, at }) => [id, name ?? '', formatBytes(bytes ?? 0), ago(at)]);
    const columns = [
      { title: 'ASSET' },
      { title: 'NAME', least: 12 },
      { title: 'BYTES', right: true },
      { title: 'WHEN' },
    ];
    lines.push('', table(columns, rows));
  }
  for (const held of heldCompanies)
    lines.push('', `${paint('yellow', '!')} ${heldText(held, harmless(held.companyName))}`);
  return lines.join('\n');
}

interface HoldOptions {
  project?: string;
  connection?: string;
  reason?: string;
  json?: boolean;
}

/** Protects assets, a project or a connection; without any of them, lists what is protected. */
export async function hold(api: ApiClient, ids: string[], options: HoldOptions): Promise<void> {
  if (ids.length === 0 && options.project === undefined && options.connection === undefined) return list(api, options);
  const target = await targetOf(api, ids, options);
  const { changed } = await api.hold({ ...target, reason: options.reason });
  if (options.json) return printJson({ changed });
  print(changed === 0 ? 'Already protected from removal.' : `Protected from removal: ${namesOf(target)}.`);
}

const notProtected = {
  asset: 'It has no protection of its own. Its project or connection may be protected: see `asset-mirror hold`.',
  project: 'It was not protected.',
  connection: 'It was not protected.',
};

export async function release(api: ApiClient, ids: string[], options: HoldOptions): Promise<void> {
  const target = await targetOf(api, ids, options);
  const { changed } = await api.release(target);
  if (options.json) return printJson({ changed });
  print(changed === 0 ? notProtected[target.kind] : `No longer protected from removal: ${namesOf(target)}.`);
}

async function list(api: ApiClient, { json }: HoldOptions): Promise<void> {
  const found = await api.holds();
  if (json) return printJson(found);
  if (found.holds.length === 0) return print('Nothing is protected from removal.');
  const rows = found.holds.map(({ kind, id, heldBy, heldAt, reason }) => [kind, id, heldBy, ago(heldAt), reason ?? '']);
  const columns = ['KIND', 'ID', 'BY', 'SINCE'].map((title) => ({ title }));
  print(table([...columns, { title: 'REASON', least: 12 }], rows));
}

const namesOf = ({ kind, ids }: Pick<Asked<'hold'>, 'kind' | 'ids'>) =>
  harmless(ids.length === 1 ? `${kind} ${ids[0]}` : counted(ids.length, kind));

/** @throws UsageError unless exactly one kind of thing is named */
async function targetOf(
  api: ApiClient,
  ids: string[],
  { project, connection }: HoldOptions,
): Promise<Pick<Asked<'hold'>, 'kind' | 'ids'>> {
  const named = [ids.length > 0, project !== undefined, connection !== undefined].filter(Boolean).length;
  if (named !== 1) throw new UsageError('name either assets, or --project, or --connection');
  if (project !== undefined) return { kind: 'project', ids: [project] };
  if (connection !== undefined) return { kind: 'connection', ids: [await findConnection(api, connection)] };
  return { kind: 'asset', ids };
}
