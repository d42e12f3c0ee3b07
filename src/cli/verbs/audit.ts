import type { Answer, Asked } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { print, printJson, printJsonLine, table } from '../output.ts';

interface AuditOptions {
  search?: string;
  action?: string;
  refused?: boolean;
  since?: string;
  until?: string;
  limit: number;
  all?: boolean;
  json?: boolean;
}

/** Lists the audit log, newest first; with `all` every entry, and as JSON one per line. */
export async function audit(api: ApiClient, options: AuditOptions): Promise<void> {
  const { search: q, action, refused, since, until, limit, all, json } = options;
  const query: Asked<'auditLog'> = { q, action, since, until, ...(refused && { outcome: 'refused' as const }) };
  if (json && !all) return printJson(await api.audit({ ...query, limit }));
  const pages = all ? api.auditPages(query) : [await api.audit({ ...query, limit })];
  let isFirst = true;
  for await (const { entries } of pages) {
    if (json) for (const entry of entries) printJsonLine(entry);
    else if (entries.length > 0) print(rowsOf(entries, isFirst));
    else if (isFirst) print('No matching entry.');
    isFirst = false;
  }
}

function rowsOf(entries: Answer<'auditLog'>['entries'], withTitles: boolean): string {
  const columns = [
    { title: 'TIME' },
    { title: 'WHO', least: 12 },
    { title: 'ROLE', spare: 2 },
    { title: 'FROM', least: 9, spare: 1 },
    { title: 'ACTION' },
    { title: 'TARGET', least: 8 },
    { title: 'OUTCOME' },
    { title: 'DETAILS', least: 12 },
  ];
  const rows = entries.map((entry) => [
    entry.at.replace(/\.\d+Z$/, 'Z'),
    entry.by?.name ?? '?',
    entry.by?.role ?? '',
    entry.address,
    entry.action,
    entry.assetId ?? entry.connectionId ?? entry.targetId ?? '',
    { text: entry.outcome, style: entry.outcome === 'done' ? ('green' as const) : ('red' as const) },
    entry.reason ?? detailsOf(entry),
  ]);
  const text = table(columns, rows);
  return withTitles ? text : text.slice(text.indexOf('\n') + 1);
}

/** `interval: 300000 → 60000`, or the request. */
function detailsOf({ before, after, request }: Answer<'auditLog'>['entries'][number]): string {
  const [old, now] = [before, after] as (Record<string, unknown> | undefined)[];
  if (!old || !now) return request === undefined ? '' : JSON.stringify(request);
  return Object.keys({ ...old, ...now })
    .map((name) => `${name}: ${JSON.stringify(old[name])} → ${JSON.stringify(now[name])}`)
    .join(', ');
}
