import { type Tags, tagsText } from '../../floor/tags.ts';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Answer, Asked, ConnectionSummary } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { RefusedByService, UsageError } from '../failures.ts';
import { findConnection } from '../find-connection.ts';
import { counted, harmless, paint, print, printJson } from '../output.ts';

interface SetOptions {
  interval?: string;
  include?: string[];
  exclude?: string[];
  concurrency?: string;
  bandwidth?: string;
  holdMissing?: string;
  holdReplaced?: string;
  tag?: Tags;
  untag?: string[];
  force?: boolean;
  json?: boolean;
}

/** Changes or shows the settings of one connection; without one, those of all processes. */
export async function set(api: ApiClient, given: string | undefined, options: SetOptions): Promise<void> {
  if (given === undefined) return setForAll(api, options);
  const id = await findConnection(api, given);
  const request = requestOf(options);
  if (Object.keys(request).length === 0) {
    const connection = await api.connection(id);
    return options.json ? printJson(connection.settings) : print(describe(connection));
  }
  const { changed, ...connection } = await api
    .changeConnection(id, { ...request, ...(options.force && { force: true }) })
    .catch(suggestForce);
  if (options.json) return printJson({ settings: connection.settings, tags: connection.tags, changed });
  print(describe(connection));
  for (const line of consequences(changed)) print(line);
}

/** A refusal of unknown names says how the command line accepts them. */
function suggestForce(error: unknown): never {
  if (!(error instanceof RefusedByService) || error.problem.code !== 'unknown_name') throw error;
  const details = (error.problem.errors ?? []).map(({ detail }) => detail);
  throw new RefusedByService(error.problem, `${details.join(' ')} Correct the names, or accept them with --force.`);
}

async function setForAll(api: ApiClient, { json, ...options }: SetOptions): Promise<void> {
  const [other] = Object.keys(options).filter((name) => !['bandwidth', 'force'].includes(name));
  if (other !== undefined) {
    const option = `--${other.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    throw new UsageError(
      `${option} needs a connection: asset-mirror set CONNECTION ${option} …; without one, only --bandwidth can be set`,
    );
  }
  if (options.bandwidth === undefined) {
    const settings = await api.settings();
    return json ? printJson(settings) : print(describeAll(settings));
  }
  const settings = await api.changeSettings({ bandwidth: orDefault(options.bandwidth) });
  if (json) return printJson(settings);
  const now = settings.bandwidth === null ? 'without a limit' : `at most ${formatBytes(settings.bandwidth)}/s`;
  const limit = settings.bandwidthTimetable === null ? now : `${now}, by the timetable ${settings.bandwidthTimetable}`;
  print(
    settings.from === 'settings'
      ? `Each process now downloads ${limit}. Return to BANDWIDTH_LIMIT with \`asset-mirror set --bandwidth default\`.`
      : `Each process uses its own BANDWIDTH_LIMIT again. The process that answered downloads ${limit}.`,
  );
}

function describeAll({ from, ...settings }: Answer<'settings'>): string {
  const limit = bandwidthText(settings, 'no limit');
  const whose = from === 'settings' ? '' : paint('dim', '  (BANDWIDTH_LIMIT of the process that answered)');
  return `bandwidth    ${limit}${whose}\nShow the settings of a connection with \`asset-mirror set CONNECTION\`.`;
}

function requestOf(options: SetOptions): Asked<'changeConnection', 1> {
  const { interval, include, exclude, concurrency, bandwidth, holdMissing, holdReplaced, tag, untag } = options;
  return {
    ...(interval !== undefined && { syncInterval: orDefault(interval) }),
    ...(include !== undefined && { include: choiceOf('include', include) }),
    ...(exclude !== undefined && { exclude: choiceOf('exclude', exclude) }),
    ...(concurrency !== undefined && { concurrency: concurrencyOf(concurrency) }),
    ...(bandwidth !== undefined && { bandwidth: orDefault(bandwidth) }),
    ...(holdMissing !== undefined && { holdMissing: orDefault(holdMissing) }),
    ...(holdReplaced !== undefined && { holdReplaced: orDefault(holdReplaced) }),
    ...((tag || untag) && { tags: { ...tag, ...Object.fromEntries((untag ?? []).map((key) => [key, null])) } }),
  };
}

/** `20.0 MiB/s in each process`, with its timetable. */
function bandwidthText(
  { bandwidth, bandwidthTimetable }: Pick<Answer<'settings'>, 'bandwidth' | 'bandwidthTimetable'>,
  none: string,
): string {
  const now = bandwidth === null ? none : `${formatBytes(bandwidth)}/s in each process`;
  return bandwidthTimetable === null ? now : `${bandwidthTimetable}; now ${now}`;
}

/** The API parses the values. null: the environment variable applies again. */
const orDefault = (text: string) => (text === 'default' ? null : text);

function concurrencyOf(text: string): number | null {
  if (text === 'default') return null;
  if (!/^\d{1,4}$/.test(text)) throw new UsageError(`--concurrency ${text}: expected a whole number, or default`);
  return Number(text);
}

const lists = { company: 'companyIds', project: 'projectIds', type: 'assetTypes' } as const;

/** Turns `type=videos company=acme` into lists. `default` is null, `none` clears every list. */
function choiceOf(option: 'include' | 'exclude', words: string[]): Asked<'changeConnection', 1>['include'] {
  if (words.length === 1 && words[0] === 'default') return null;
  if (words.length === 1 && words[0] === 'none') return { companyIds: [], projectIds: [], assetTypes: [] };
  const choice: { [list in (typeof lists)[keyof typeof lists]]?: string[] } = {};
  for (const word of words) {
    const [, kind, value] = /^(company|project|type)=(.+)$/s.exec(word) ?? [];
    if (kind === undefined || value === undefined) {
      throw new UsageError(
        `--${option} ${word}: expected company=ID, project=ID or type=TYPE, such as type=videos; or only default or none`,
      );
    }
    const list = lists[kind as keyof typeof lists];
    choice[list] = [...(choice[list] ?? []), value];
  }
  return choice;
}

function describe({ settings, tags }: Pick<ConnectionSummary, 'settings' | 'tags'>): string {
  const ifDefault = (...names: string[]) =>
    settings.own.some((name) => names.some((of) => name === of || name.startsWith(`${of}.`)))
      ? ''
      : paint('dim', '  (default)');
  const choice = (of: typeof settings.include, otherwise: string) =>
    Object.entries(lists)
      .flatMap(([word, list]) => of[list].map((value) => `${word}=${harmless(value)}`))
      .join(' ') || otherwise;
  return [
    `interval     ${formatDuration(settings.syncInterval)}${ifDefault('syncInterval')}`,
    `include      ${choice(settings.include, 'everything')}${ifDefault('include')}`,
    `exclude      ${choice(settings.exclude, 'nothing')}${ifDefault('exclude')}`,
    `concurrency  at most ${settings.concurrency} assets at once${ifDefault('concurrency')}`,
    `bandwidth    ${bandwidthText(settings, 'no own limit')}${ifDefault('bandwidth')}`,
    `hold         if ${limit(settings.holdMissing)}, are missing${ifDefault('holdMissing')}`,
    `             if over ${limit(settings.holdReplaced)}, are replaced${ifDefault('holdReplaced')}`,
    `tags         ${harmless(tagsText(tags)) || 'none'}`,
  ].join('\n');
}

const limit = ({ percent, assets }: ConnectionSummary['settings']['holdMissing']) =>
  `${percent}% of a company's assets, and more than ${assets}`;

type Changed = Awaited<ReturnType<ApiClient['changeConnection']>>['changed'];

function consequences({ unknown, ...changed }: Changed): string[] {
  const unknownNames = [
    ...unknown.companyIds.map((id) => `This connection cannot read a company ${id}.`),
    ...unknown.projectIds.map((id) => `No asset belongs to a project ${id}.`),
    ...unknown.assetTypes.map((type) => `No asset has the type ${type}.`),
  ];
  return [...unknownNames.map((line) => paint('yellow', harmless(line))), ...effectsOf(changed)];
}

function effectsOf({ skipped, unskipped, syncId }: Omit<Changed, 'unknown'>): string[] {
  if (skipped === null || unskipped === null)
    return ['The filters are being applied. See the result with `asset-mirror status`.'];
  return [
    skipped > 0 ? `The filters now skip ${counted(skipped, 'pending asset')}. Files in the bucket stay.` : '',
    unskipped > 0 ? `The filters no longer skip ${counted(unskipped, 'asset')}. They will be mirrored.` : '',
    syncId !== null ? `A full sync (${syncId}) has started. It lists what earlier syncs did not list.` : '',
  ].filter(Boolean);
}
