import type { MirrorEvent } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { findOptional } from '../find-connection.ts';
import { counted, harmless, paint, print, printError, printJson, printJsonLine } from '../output.ts';

interface EventsOptions {
  connection?: string;
  asset?: string;
  kind?: string;
  limit: number;
  follow?: boolean;
  json?: boolean;
}

/** Lists events, newest last; with `follow` until interrupted, and as JSON one per line. */
export async function events(api: ApiClient, options: EventsOptions): Promise<void> {
  const connectionId = await findOptional(api, options.connection);
  const filter = { connectionId, assetId: options.asset, kind: options.kind };
  const past = () => api.events({ ...filter, limit: options.limit });
  if (!options.follow) {
    const page = await past();
    if (options.json) return printJson(page);
    if (page.events.length === 0) return print('No matching events in the last 30 days.');
    for (const event of page.events.reverse()) print(lineOf(event));
    return;
  }

  const say = (event: MirrorEvent) => (options.json ? printJsonLine(event) : print(lineOf(event)));
  // Events that arrive while the past ones are fetched are printed after them, once.
  let buffered: MirrorEvent[] | undefined = [];
  let isConnected = true;
  const following = api.followEvents(filter, {
    onEvent: (event) => (buffered ? buffered.push(event) : say(event)),
    onLine(now) {
      if (now !== isConnected) printError(now ? 'Connected again.' : 'Connection lost, reconnecting …');
      isConnected = now;
    },
  });
  const before = await Promise.race([following.open.then(past), following.end]);
  for (const event of before.events.reverse()) say(event);
  const shown = new Set(before.events.map(({ id }) => id));
  const missed = buffered.filter(({ id }) => !shown.has(id));
  buffered = undefined;
  for (const event of missed) say(event);
  await following.end;
}

const tones = [
  [/\.(disconnected|failed|differs|given_up|gone)$/, 'red'],
  [/\.(paused|lost|held)$/, 'yellow'],
  [/\.(connected|reconnected|recovered|resumed|caught_up|mirrored|gained)$/, 'green'],
] as const;

/** `2026-01-31T12:00:00.000Z  asset.failed  a1  the reason` */
function lineOf({ at, kind, connectionId, assetId, data }: MirrorEvent): string {
  const [, tone = 'cyan'] = tones.find(([pattern]) => pattern.test(kind)) ?? [];
  const about = [assetId, connectionId && `connection ${connectionId}`].filter(Boolean).join(', ');
  const details = [about, ...(kind === 'connection.caught_up' ? [caughtUp(data)] : factsOf(data))]
    .filter(Boolean)
    .join('  ');
  return `${paint('dim', at)}  ${paint(tone, kind)}  ${harmless(details)}`.trimEnd();
}

/** `3 new assets since 2026-01-31T12:00:00.000Z, uploaded from … to …` */
function caughtUp({ since, new: added, from, to }: MirrorEvent['data']): string {
  const uploaded = from === null || to === null ? '' : `, uploaded from ${from} to ${to}`;
  return `${counted(Number(added), 'new asset')} since ${since}${uploaded}`;
}

/** The reason, and other data as `name=value`. */
function factsOf({ reason, ...rest }: MirrorEvent['data']): string[] {
  const facts = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return [typeof reason === 'string' ? reason : '', facts.join(' ')];
}
