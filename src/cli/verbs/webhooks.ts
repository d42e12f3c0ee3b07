import type { Answer, Asked } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { UsageError } from '../failures.ts';
import { findConnection } from '../find-connection.ts';
import { agoShort, counted, harmless, number, paint, print, printJson, table } from '../output.ts';

interface ValueOptions {
  kind?: Asked<'changeWebhook', 1>['kinds'];
  connection?: string[];
  company?: string[];
  project?: string[];
  type?: string[];
  description?: string;
  json?: boolean;
}

interface SetOptions extends ValueOptions {
  url?: string;
  /** False: --no-filters. */
  filters: boolean;
  enable?: boolean;
  disable?: boolean;
  rotateSecret?: true;
}

const tones = { working: 'green', failing: 'red', gone: 'red', disabled: 'yellow' } as const;

export async function list(api: ApiClient, { json }: { json?: boolean }): Promise<void> {
  const found = await api.webhooks();
  if (json) return printJson(found);
  if (found.webhooks.length === 0) return print('No webhook endpoint. Add one with `asset-mirror webhooks add URL`.');
  const columns = [
    { title: 'ENDPOINT' },
    { title: 'STATE' },
    { title: 'WAITING', right: true },
    { title: 'ADDRESS', least: 20 },
    { title: 'KINDS', least: 12 },
    { title: 'DESCRIPTION', least: 8, spare: 1 },
  ];
  const rows = found.webhooks.map(({ id, state, waiting, url, kinds, description, fromEnvironment }) => [
    id,
    { text: state, style: tones[state] },
    number(waiting),
    url,
    kinds.join(' '),
    description ?? (fromEnvironment ? 'WEBHOOK_URL' : ''),
  ]);
  print(table(columns, rows));
}

export async function add(api: ApiClient, url: string, options: ValueOptions): Promise<void> {
  say(await api.addWebhook({ ...(await valuesOf(api, options)), url }), options);
}

export async function set(api: ApiClient, id: string, options: SetOptions): Promise<void> {
  const { url, enable, disable, rotateSecret, filters } = options;
  const change = {
    ...(await valuesOf(api, options)),
    ...(!filters && { filters: {} }),
    url,
    enabled: enable ? true : disable ? false : undefined,
    rotateSecret,
  };
  say(await api.changeWebhook(id, change), options);
}

export async function remove(api: ApiClient, id: string, { json }: { json?: boolean }): Promise<void> {
  const removed = await api.removeWebhook(id);
  if (json) return printJson(removed);
  print(`Removed ${harmless(removed.id)}.`);
}

interface DeliveriesOptions extends Pick<Asked<'deliveries', 1>, 'state'> {
  limit: number;
  json?: boolean;
}

const deliveryTones = { waiting: 'yellow', delivered: 'green', failed: 'red' } as const;

/** Lists messages, newest event first. */
export async function deliveries(api: ApiClient, id: string, { state, limit, json }: DeliveriesOptions): Promise<void> {
  const found = await api.deliveries(id, { state, limit });
  if (json) return printJson(found);
  if (found.deliveries.length === 0) return print('No messages.');
  const columns = [
    { title: 'MESSAGE' },
    { title: 'KIND' },
    { title: 'ABOUT', least: 10, spare: 2 },
    { title: 'EVENT' },
    { title: 'STATE' },
    { title: 'ATTEMPT', right: true, spare: 1 },
    { title: 'RESULT', least: 16 },
  ];
  const rows = found.deliveries.map((one) => [
    one.id,
    one.kind,
    one.assetId ?? one.connectionId ?? '',
    agoShort(one.at),
    { text: one.state, style: deliveryTones[one.state] },
    number(one.attempts),
    one.attemptedAt === null
      ? ''
      : `${one.error ?? one.status}, ${number(one.ms ?? 0)} ms, ${agoShort(one.attemptedAt)}`,
  ]);
  print(table(columns, rows));
}

interface RedeliverOptions {
  failedSince?: string;
  json?: boolean;
}

/** @throws UsageError unless either a message or a time is given */
export async function redeliver(
  api: ApiClient,
  id: string,
  messageId: string | undefined,
  { failedSince, json }: RedeliverOptions,
): Promise<void> {
  if ((messageId === undefined) === (failedSince === undefined)) {
    throw new UsageError('name either a message, or --failed-since');
  }
  const request = messageId !== undefined ? { messageId } : { failedSince: failedSince! };
  const { redelivered } = await api.redeliver(id, request);
  if (json) return printJson({ redelivered });
  print(`Sending ${counted(redelivered, 'message')} again.`);
}

/** Sends a test message to an endpoint, or to the one in WEBHOOK_URL. Returns 1 if it was not accepted. */
export async function test(api: ApiClient, id: string | undefined, options: { json?: boolean }): Promise<number> {
  const { delivered, reason } = await api.testWebhook(id);
  if (options.json) printJson({ delivered, reason });
  else if (delivered) print(`${paint('green', '✓')} The webhook endpoint accepted the test message.`);
  else print(`${paint('red', '✗')} The webhook endpoint did not accept the test message: ${harmless(reason ?? '')}`);
  return delivered ? 0 : 1;
}

/** The values in the options. `filters` replaces all filters of the endpoint, so it is absent if no option has one. */
async function valuesOf(api: ApiClient, options: ValueOptions): Promise<Omit<Asked<'changeWebhook', 1>, 'url'>> {
  const { kind, connection = [], company, project, type, description } = options;
  const connectionIds = await Promise.all(connection.map((name) => findConnection(api, name)));
  const filters = {
    ...(connectionIds.length > 0 && { connectionIds }),
    ...(company && { companyIds: company }),
    ...(project && { projectIds: project }),
    ...(type && { assetTypes: type }),
  };
  return {
    kinds: kind,
    ...(Object.keys(filters).length > 0 && { filters }),
    description: description === '' ? null : description,
  };
}

function say({ secret, ...webhook }: Answer<'changeWebhook'>, { json }: { json?: boolean }): void {
  if (json) {
    printJson({ ...webhook, secret });
    return;
  }
  const { id, url, state, kinds, filters, description } = webhook;
  const facts = { address: url, state, kinds: kinds.join(', '), ...filters, ...(description && { description }) };
  print(paint('bold', id));
  for (const [name, value] of Object.entries(facts))
    print(`  ${name.padEnd(14)}${harmless([value].flat().join(', '))}`);
  if (secret !== null) print(`\nIts secret, which is not shown again:\n${secret}`);
}
