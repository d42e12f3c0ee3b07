import { formatBytes, formatClock } from '../../floor/units.ts';
import type { Answer, Asked } from '../answers.ts';
import { type AssetFilterOptions, filterOf } from '../asset-filters.ts';
import type { ApiClient } from '../client.ts';
import { RefusedByService, UsageError } from '../failures.ts';
import { findConnection, findOptional } from '../find-connection.ts';
import { mostRows } from '../options.ts';
import { ago, type Cell, counted, harmless, number, paint, print, printJson, printJsonLine, table } from '../output.ts';

interface AssetsOptions extends AssetFilterOptions {
  said?: string;
  sort: Asked<'assets'>['sort'];
  limit: number;
  counts?: boolean;
  all?: boolean;
  json?: boolean;
}

type AssetSummary = Answer<'assets'>['assets'][number];
type Hit = NonNullable<AssetSummary['said']>[number];

export const colours: Record<AssetSummary['state'], 'green' | 'red' | 'yellow' | 'cyan' | 'dim'> = {
  mirrored: 'green',
  failed: 'red',
  unavailable: 'yellow',
  processing: 'yellow',
  transferring: 'cyan',
  pending: 'dim',
  gone: 'dim',
};

/** Lists assets; with `all` and `json`, one per line. */
export async function assets(api: ApiClient, options: AssetsOptions): Promise<void> {
  const connectionId = await findOptional(api, options.connection);
  const filter = { ...filterOf(options), connectionId, said: options.said };
  const none = Object.values(filter).some((it) => it !== undefined)
    ? 'No asset matches.'
    : 'No assets are known yet. They are listed by the first sync.';
  if (options.counts) {
    const counts = await api.facets(filter);
    return options.json ? printJson(counts) : print(counts.matching === 0 ? none : facetTable(counts));
  }
  const query: Asked<'assets'> = { ...filter, sort: options.sort };
  if (options.all) {
    let found = 0;
    for await (const page of api.assetPages(query)) {
      found += page.assets.length;
      if (options.json) for (const asset of page.assets) printJsonLine(asset);
      else if (page.assets.length > 0) print(assetTable(page.assets));
    }
    if (!options.json) print(found === 0 ? none : `\n${counted(found, 'asset')}`);
    return;
  }
  const page = await api.assets({ ...query, limit: options.limit });
  if (options.json) return printJson(page);
  if (page.assets.length === 0) return print(none);
  print(assetTable(page.assets));
  if (page.nextCursor !== null) print(paint('dim', `\nThere are more. Use --limit (up to ${mostRows}) or --all.`));
}

const facetTitles: Record<keyof Answer<'facets'>['facets'], string> = {
  state: 'State',
  type: 'Type',
  mimeType: 'MIME type',
  tag: 'Tag',
  projectId: 'Project',
  companyId: 'Company',
  connectionId: 'Connection',
};

function facetTable({ matching, isComplete, facets }: Answer<'facets'>): string {
  const rows = Object.entries(facetTitles).flatMap(([facet, title]) =>
    facets[facet as keyof typeof facets].map(({ value, name, count }, index): Cell[] => [
      index === 0 ? title : '',
      value,
      name ?? '',
      number(count),
    ]),
  );
  const total = isComplete
    ? counted(matching, 'asset')
    : `More than ${counted(matching, 'asset')} match; only these were counted. Add conditions to get exact counts.`;
  const titles = [{ title: '' }, { title: 'VALUE' }, { title: 'NAME' }, { title: 'ASSETS', right: true }];
  return `${table(titles, rows)}\n\n${total}`;
}

function assetTable(found: AssetSummary[]): string {
  const rows = found.map((asset): Cell[] => [
    asset.id,
    asset.name ?? '',
    asset.skipped ? { text: 'skipped', style: 'dim' } : { text: asset.state, style: colours[asset.state] },
    asset.size === null ? '' : formatBytes(asset.size),
    asset.type ?? '',
    asset.uploadDate?.slice(0, 10) ?? '',
    reasonOf(asset),
  ]);
  const [titles, ...lines] = table(
    [
      { title: 'ASSET' },
      { title: 'NAME', least: 12 },
      { title: 'STATE' },
      { title: 'SIZE', right: true, spare: 1 },
      { title: 'TYPE', spare: 3 },
      { title: 'UPLOADED', spare: 2 },
      { title: 'REASON', least: 24 },
    ],
    rows,
  ).split('\n');
  return [titles, ...lines.flatMap((line, index) => [line, ...(found[index]!.said ?? []).map(hitLine)])].join('\n');
}

/** `  1:23  the line, with the matching words in bold` */
function hitLine({ startMs, text, marks }: Hit): string {
  let line = '';
  let end = 0;
  for (const [from, to] of marks) {
    line += harmless(text.slice(end, from)) + paint('bold', harmless(text.slice(from, to)));
    end = to;
  }
  return `  ${formatClock(startMs)}  ${line}${harmless(text.slice(end))}`;
}

/** Why it is not complete, and the time of its next attempt or check. */
function reasonOf({ state, reason, nextAt, attempts, transcript, thumbnail }: AssetSummary): string {
  const next = nextAt === null || Date.parse(nextAt) <= Date.now() ? '' : `next try ${ago(nextAt)}`;
  const waits =
    state === 'mirrored' && nextAt !== null
      ? [transcript === 'pending' && 'transcript', thumbnail === 'pending' && 'thumbnail'].filter(Boolean).join(' and ')
      : '';
  const tried = attempts > 0 && state !== 'mirrored' ? counted(attempts, 'attempt') : '';
  return [reason?.text ?? '', tried, waits && `${waits} may still appear`, next].filter(Boolean).join('; ');
}

/** Retries these assets, or with `failed` all failed ones. Returns how many were refused; an unknown one sets exit code 2. */
export async function retry(
  api: ApiClient,
  ids: string[],
  options: { failed?: boolean; connection?: string; json?: boolean },
): Promise<number> {
  if (options.failed ? ids.length > 0 : ids.length === 0) {
    throw new UsageError('name the assets to retry, or use --failed for all failed assets');
  }
  if (options.connection !== undefined && !options.failed) throw new UsageError('--connection needs --failed');
  return options.failed ? retryFailed(api, options) : retryEach(api, ids, options);
}

async function retryFailed(api: ApiClient, options: { connection?: string; json?: boolean }): Promise<number> {
  const connectionIds =
    options.connection !== undefined
      ? [await findConnection(api, options.connection)]
      : (await api.allConnections())
          .filter(({ status, counts }) => status !== 'disconnected' && counts.byState.failed > 0)
          .map(({ id }) => id);
  let retried = 0;
  for (const id of connectionIds) retried += (await api.retryFailed(id)).retried;
  if (options.json) printJson({ retried });
  else if (retried === 0) print('No failed assets to retry.');
  else print(`Retrying ${counted(retried, 'asset')}. Watch with \`asset-mirror status --watch\`.`);
  return 0;
}

async function retryEach(api: ApiClient, ids: string[], options: { json?: boolean }): Promise<number> {
  const answers: { id: string; state?: string; refused?: string }[] = [];
  for (const id of ids) {
    try {
      const { state, nextAt } = await api.retry(id);
      answers.push({ id, state });
      if (!options.json) {
        const waits = nextAt === null ? 'complete, nothing to retry' : 'checking for a missing transcript or thumbnail';
        print(
          `${paint('green', '✓')} ${harmless(id)}: ${state === 'mirrored' ? `mirrored; ${waits}` : 'retrying now'}`,
        );
      }
    } catch (error) {
      // A role that is too low is refused for all assets.
      if (!(error instanceof RefusedByService) || error.problem.status === 403) throw error;
      if (error.problem.status === 404) process.exitCode = 2;
      answers.push({ id, refused: error.message });
      if (!options.json) print(`${paint('red', '✗')} ${harmless(`${id}: ${error.message}`)}`);
    }
  }
  if (options.json) printJson({ assets: answers });
  return answers.filter(({ refused }) => refused !== undefined).length;
}
