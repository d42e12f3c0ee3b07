import { formatBytes, formatDuration } from '../../units.ts';
import type { Plan, PlanProgress } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { ago, cut, harmless, overwrite, paint, print, printJson, table } from '../output.ts';

/** What a full sync would move, before it moves. Returns how much could not be listed. */
export async function plan(
  api: ApiClient,
  connectionId: string | undefined,
  options: { json?: boolean },
): Promise<number> {
  const line = process.stderr.isTTY && !options.json;
  const found = await api.plan(connectionId, (progress) => {
    if (line) overwrite(process.stderr, cut(describeProgress(progress), (process.stderr.columns || 80) - 1));
  });
  if (line) overwrite(process.stderr);
  if (options.json) printJson(found);
  else print(describe(found));
  return found.problems.length;
}

function describeProgress({ companyId, listed, pages, waitsUntil }: PlanProgress): string {
  const where = companyId === null ? 'asking what can be read' : `listing ${harmless(companyId)}`;
  const wait = waitsUntil === null ? '' : `; it waits, and goes on ${ago(waitsUntil)}`;
  return `${where}: ${listed} assets, ${pages} pages${wait}`;
}

const kinds = {
  new: 'new',
  missing: 'older, and missing in the records',
  changed: 'another file than the one in the bucket',
  waiting: 'known, and not in the bucket yet',
} as const;
const others = {
  record: 'with news for their record only',
  same: 'in the bucket as they are',
  processing: 'still transcoding',
  unavailable: 'without a file at the library',
  skipped: 'skipped by a filter',
  unreadable: 'that cannot be read',
} as const;

function describe(found: Plan): string {
  const { byKind, toMove, time } = found;
  const amount = ({ assets, bytes }: { assets: number; bytes: number }) => `${assets} assets, ${formatBytes(bytes)}`;
  const lines = [
    toMove.assets === 0
      ? paint('bold', 'A full sync would move nothing.')
      : `A full sync would move ${paint('bold', amount(toMove))}${duration(time)}`,
  ];
  for (const [kind, words] of Object.entries(kinds)) {
    const of = byKind[kind as keyof typeof kinds];
    if (of.assets > 0) lines.push(`  ${amount(of)}: ${words}`);
  }
  if (toMove.bytes > 0) {
    lines.push(
      paint(
        'dim',
        '  By the sizes that the library lists: a video whose original is gone comes as its mp4, of another size.',
      ),
    );
  }
  if (found.sizeUnknown > 0)
    lines.push(`  Of ${found.sizeUnknown} of them nobody says the size; they are not in the bytes.`);
  const rest = Object.entries(others)
    .map(([kind, words]) => ({ of: byKind[kind as keyof typeof others], words }))
    .filter(({ of }) => of.assets > 0);
  if (rest.length > 0)
    lines.push('', 'It would leave alone', ...rest.map(({ of, words }) => `  ${of.assets} ${words}`));
  if (found.skippedCompanies.length > 0) {
    lines.push(`  all of ${found.skippedCompanies.map(harmless).join(', ')}: skipped by a filter, and not listed`);
  }
  if (found.rows.length > 0) lines.push('', byCompany(found));
  for (const problem of found.problems) lines.push(`${paint('red', '✗')} ${harmless(problem)}`);
  return lines.join('\n');
}

function duration({ seconds, bytesPerSecond, from }: Plan['time']): string {
  if (seconds === null || bytesPerSecond === null) {
    return '. How long that takes nobody knows: nothing has moved in the last minute, and there is no limit.';
  }
  const how = from === 'measured' ? 'as in the last minute' : 'the limit of one process';
  return ` in about ${formatDuration(seconds * 1000)}, at ${formatBytes(bytesPerSecond)}/s (${how}).`;
}

/** A line for each company and type: what would be moved, and what not. */
function byCompany({ rows }: Plan): string {
  const groups = new Map<
    string,
    { company: string; type: string; move: number; bytes: number; out: number; rest: number }
  >();
  for (const { companyId, companyName, type, kind, assets, bytes } of rows) {
    const key = JSON.stringify([companyId, type]);
    const group = groups.get(key) ?? { company: companyName, type: type ?? '–', move: 0, bytes: 0, out: 0, rest: 0 };
    groups.set(key, group);
    if (kind in kinds) {
      group.move += assets;
      group.bytes += bytes;
    } else if (kind === 'skipped') group.out += assets;
    else group.rest += assets;
  }
  const sorted = [...groups.values()].sort((a, b) => b.bytes - a.bytes || b.move - a.move);
  const cells = sorted.map(({ company, type, move, bytes, out, rest }) => [
    company,
    type,
    String(move),
    formatBytes(bytes),
    String(out),
    String(rest),
  ]);
  return table(
    [
      { title: 'COMPANY', least: 12 },
      { title: 'TYPE', least: 8 },
      { title: 'TO MOVE', right: true },
      { title: 'BYTES', right: true },
      { title: 'LEFT OUT', right: true, spare: 2 },
      { title: 'LEFT ALONE', right: true, spare: 1 },
    ],
    cells,
  );
}
