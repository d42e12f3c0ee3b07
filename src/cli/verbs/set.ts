import { formatBytes, formatDuration, parseDuration, parseRate } from '../../units.ts';
import type { ConnectionSettingsRequest, ConnectionSummary, Settings } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { UsageError } from '../failures.ts';
import { harmless, paint, print, printJson } from '../output.ts';

export interface SetOptions {
  interval?: string;
  include?: string[];
  exclude?: string[];
  concurrency?: string;
  bandwidth?: string;
  json?: boolean;
}

/** Changes or shows settings of one connection, or without one what every process of the running service keeps to. */
export async function set(api: ApiClient, connectionId: string | undefined, options: SetOptions): Promise<void> {
  if (connectionId === undefined) return setForAll(api, options);
  const request = requestOf(options);
  if (Object.keys(request).length === 0) {
    const connection = await api.connection(connectionId);
    return options.json ? printJson(connection.settings) : print(describe(connection.settings));
  }
  const { changed, ...connection } = await api.changeConnection(connectionId, request);
  if (options.json) return printJson({ settings: connection.settings, changed });
  print(describe(connection.settings));
  for (const line of consequences(changed)) print(line);
}

async function setForAll(api: ApiClient, { json, ...options }: SetOptions): Promise<void> {
  const [other] = Object.keys(options).filter((name) => name !== 'bandwidth');
  if (other !== undefined) {
    throw new UsageError(
      `--${other} is set for one connection: asset-mirror set CONNECTION …; for all of them there is --bandwidth only`,
    );
  }
  if (options.bandwidth === undefined) {
    const settings = await api.settings();
    return json ? printJson(settings) : print(describeAll(settings));
  }
  const settings = await api.changeSettings({ bandwidth: bandwidthOf(options.bandwidth) });
  if (json) return printJson(settings);
  const limit = settings.bandwidth === null ? 'without a limit' : `at most ${formatBytes(settings.bandwidth)}/s`;
  print(
    settings.from === 'settings'
      ? `Each process now downloads ${limit}. \`asset-mirror set --bandwidth default\` returns to BANDWIDTH_LIMIT.`
      : `Each process keeps to its own BANDWIDTH_LIMIT again; that of the one that answered: ${limit}.`,
  );
}

function describeAll({ bandwidth, from }: Settings): string {
  const limit = bandwidth === null ? 'no limit' : `${formatBytes(bandwidth)}/s in each process`;
  const whose = from === 'settings' ? '' : paint('dim', '  (BANDWIDTH_LIMIT of the process that answered)');
  return `bandwidth    ${limit}${whose}\n\`asset-mirror set CONNECTION\` shows those of a connection.`;
}

function requestOf(options: SetOptions): ConnectionSettingsRequest {
  const { interval, include, exclude, concurrency, bandwidth } = options;
  return {
    ...(interval !== undefined && { syncInterval: intervalOf(interval) }),
    ...(include !== undefined && { include: choiceOf('include', include) }),
    ...(exclude !== undefined && { exclude: choiceOf('exclude', exclude) }),
    ...(concurrency !== undefined && { concurrency: concurrencyOf(concurrency) }),
    ...(bandwidth !== undefined && { bandwidth: bandwidthOf(bandwidth) }),
  };
}

function bandwidthOf(text: string): number | null {
  const rate = text === 'default' ? null : parseRate(text);
  if (rate === undefined) throw new UsageError(`--bandwidth ${text}: expected such as 20MiB/s, or default`);
  return rate;
}

function intervalOf(text: string): number | null {
  const ms = text === 'default' ? null : parseDuration(text);
  if (ms === undefined) throw new UsageError(`--interval ${text}: expected such as 15m or 1h, or default`);
  return ms;
}

function concurrencyOf(text: string): number | null {
  if (text === 'default') return null;
  if (!/^\d{1,4}$/.test(text)) throw new UsageError(`--concurrency ${text}: expected a whole number, or default`);
  return Number(text);
}

const lists = { company: 'companyIds', project: 'projectIds', type: 'assetTypes' } as const;

/** `type=videos company=acme` as lists; `default` as in the environment, `none` no list at all. */
function choiceOf(option: 'include' | 'exclude', words: string[]): ConnectionSettingsRequest['include'] {
  if (words.length === 1 && words[0] === 'default') return null;
  if (words.length === 1 && words[0] === 'none') return { companyIds: [], projectIds: [], assetTypes: [] };
  const choice: { [list in (typeof lists)[keyof typeof lists]]?: string[] } = {};
  for (const word of words) {
    const [, kind, value] = /^(company|project|type)=(.+)$/s.exec(word) ?? [];
    if (kind === undefined || value === undefined) {
      throw new UsageError(
        `--${option} ${word}: expected company=ID, project=ID or type=TYPE, such as type=videos; or alone default or none`,
      );
    }
    const list = lists[kind as keyof typeof lists];
    choice[list] = [...(choice[list] ?? []), value];
  }
  return choice;
}

function describe(settings: ConnectionSummary['settings']): string {
  const own = (...names: string[]) =>
    settings.own.some((name) => names.some((of) => name === of || name.startsWith(`${of}.`)))
      ? ''
      : paint('dim', '  (default)');
  const choice = (of: typeof settings.include, otherwise: string) =>
    Object.entries(lists)
      .flatMap(([word, list]) => of[list].map((value) => `${word}=${harmless(value)}`))
      .join(' ') || otherwise;
  return [
    `interval     ${formatDuration(settings.syncInterval)}${own('syncInterval')}`,
    `include      ${choice(settings.include, 'everything')}${own('include')}`,
    `exclude      ${choice(settings.exclude, 'nothing')}${own('exclude')}`,
    `concurrency  ${settings.concurrency} assets at once${own('concurrency')}`,
    `bandwidth    ${settings.bandwidth === null ? 'no limit of its own' : `${formatBytes(settings.bandwidth)}/s in each process`}${own('bandwidth')}`,
  ].join('\n');
}

type Changed = Awaited<ReturnType<ApiClient['changeConnection']>>['changed'];

function consequences({ unknown, ...changed }: Changed): string[] {
  const strange = [
    ...unknown.companyIds.map((id) => `This connection reads no company ${id}.`),
    ...unknown.projectIds.map((id) => `No asset that was listed is of a project ${id}.`),
    ...unknown.assetTypes.map((type) => `Nothing is of the type ${type}, and the library names none.`),
  ];
  return [...strange.map((line) => paint('yellow', harmless(line))), ...whatCame(changed)];
}

function whatCame({ skipped, letIn, syncId }: Omit<Changed, 'unknown'>): string[] {
  if (skipped === null || letIn === null)
    return ['Its assets are being held against that; `asset-mirror status` shows it.'];
  return [
    skipped > 0 ? `${skipped} assets that were still to come are skipped; what is in the bucket stays.` : '',
    letIn > 0 ? `${letIn} assets that were skipped are mirrored now.` : '',
    syncId !== null ? `A full sync (${syncId}) looks for what was not listed before.` : '',
  ].filter(Boolean);
}
