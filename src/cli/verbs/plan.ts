import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Answer, Plan, PlanProgress } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { UsageError } from '../failures.ts';
import { findOptional } from '../find-connection.ts';
import { ago, counted, cut, harmless, number, overwrite, paint, print, printJson, table } from '../output.ts';
import { scrubLine } from './status.ts';

interface PlanOptions {
  scrub?: boolean;
  json?: boolean;
}

/** Shows what a full sync would transfer, or what the scrub reads. Returns the number of companies that could not be listed. */
export async function plan(api: ApiClient, connectionId: string | undefined, options: PlanOptions): Promise<number> {
  if (options.scrub) {
    if (connectionId !== undefined) throw new UsageError('--scrub is about the whole mirror; omit the connection');
    const found = await api.scrub();
    if (options.json) printJson(found);
    else print(describeScrub(found));
    return 0;
  }
  const line = process.stderr.isTTY && !options.json;
  const found = await api.plan(await findOptional(api, connectionId), (progress) => {
    if (line) overwrite(process.stderr, cut(describeProgress(progress), (process.stderr.columns || 80) - 1));
  });
  if (line) overwrite(process.stderr);
  if (options.json) printJson(found);
  else print(describe(found));
  return found.problems.length;
}

function describeScrub({
  cycle,
  perDay,
  assets,
  objects,
  bytes,
  bandwidth,
  bytesPerSecond,
  ...state
}: Answer<'scrub'>): string {
  const what = `${number(assets)} assets, ${number(objects)} objects, ${formatBytes(bytes)}`;
  if (cycle === null || perDay === null) return `The scrub is off (SCRUB_CYCLE). It would read ${what} in each cycle.`;
  return [
    `The scrub reads ${paint('bold', what)} in ${formatDuration(cycle)}.`,
    `  ${number(perDay.requests)} requests and ${formatBytes(perDay.bytes)} a day on average`,
    `  ${formatBytes(bytesPerSecond)}/s needed now, at most ${formatBytes(bandwidth)}/s`,
    `  ${scrubLine({ cycle, ...state })}`,
  ].join('\n');
}

function describeProgress({ companyId, listed, pages, waitsUntil }: PlanProgress): string {
  const where = companyId === null ? 'reading the companies' : `listing ${harmless(companyId)}`;
  const wait = waitsUntil === null ? '' : `; waiting, continues ${ago(waitsUntil)}`;
  return `${where}: ${counted(listed, 'asset')}, ${counted(pages, 'page')}${wait}`;
}

function describe(found: Plan): string {
  const { byKind, toMove, time } = found;
  const amount = ({ assets, bytes }: { assets: number; bytes: number }) =>
    `${counted(assets, 'asset')}, ${formatBytes(bytes)}`;
  const lines = [
    listedNothing(found)
      ? paint('bold', 'The library could not be listed.')
      : toMove.assets === 0
        ? paint('bold', 'A full sync would transfer nothing.')
        : `A full sync would transfer ${paint('bold', amount(toMove))}${duration(time)}`,
  ];
  const listed = Object.values(byKind).filter(({ assets }) => assets > 0);
  for (const of of listed) if (of.moves) lines.push(`  ${amount(of)}: ${of.text}`);
  if (toMove.bytes > 0) {
    lines.push(
      paint(
        'dim',
        '  Sizes are as the library lists them. A video without its original is stored as mp4, which has another size.',
      ),
    );
  }
  if (found.sizeUnknown > 0) lines.push(`  The size of ${found.sizeUnknown} of them is unknown and not included.`);
  const rest = listed.filter(({ moves }) => !moves);
  if (rest.length > 0) lines.push('', 'Not transferred:', ...rest.map(({ assets, text }) => `  ${assets} ${text}`));
  if (found.skippedCompanies.length > 0) {
    lines.push(`  all of ${found.skippedCompanies.map(harmless).join(', ')}: skipped by filters, not listed`);
  }
  if (found.rows.length > 0) lines.push('', byCompany(found));
  for (const problem of found.problems) lines.push(`${paint('red', '✗')} ${harmless(problem)}`);
  return lines.join('\n');
}

const listedNothing = ({ listed, problems }: Plan) => listed === 0 && problems.length > 0;

function duration({ seconds, bytesPerSecond, from }: Plan['time']): string {
  if (seconds === null || bytesPerSecond === null) {
    return '. The time is unknown: no transfers in the last minute, and no bandwidth limit.';
  }
  const how = from === 'measured' ? 'rate of the last minute' : 'bandwidth limit of one process';
  return ` in about ${formatDuration(seconds * 1000)}, at ${formatBytes(bytesPerSecond)}/s (${how}).`;
}

/** One line per company and type. */
function byCompany({ rows, byKind }: Plan): string {
  const groups = new Map<
    string,
    { company: string; type: string; move: number; bytes: number; out: number; rest: number }
  >();
  for (const { companyId, companyName, type, kind, assets, bytes } of rows) {
    const key = JSON.stringify([companyId, type]);
    const group = groups.get(key) ?? { company: companyName, type: type ?? '–', move: 0, bytes: 0, out: 0, rest: 0 };
    groups.set(key, group);
    if (byKind[kind].moves) {
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
      { title: 'ASSETS', right: true },
      { title: 'BYTES', right: true },
      { title: 'SKIPPED', right: true, spare: 2 },
      { title: 'OTHER', right: true, spare: 1 },
    ],
    cells,
  );
}
