import { setTimeout as sleep } from 'node:timers/promises';
import { formatBytes } from '../../floor/units.ts';
import type { Answer } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { isAway } from '../failures.ts';
import { harmless, paint, print, printError, printJson, printJsonLine } from '../output.ts';

interface ChangesOptions {
  after?: string;
  limit: number;
  follow?: boolean;
  json?: boolean;
}

const pollMs = 2000;

/** Lists a page of changes; with `follow` all of them until interrupted, and as JSON one per line. */
export async function changes(api: ApiClient, { after, limit, follow, json }: ChangesOptions): Promise<void> {
  let page = await api.changes({ after, limit });
  if (!follow) {
    if (json) return printJson(page);
    if (page.changes.length === 0) return print('No changes.');
    for (const change of page.changes) print(lineOf(change));
    return printError(`Continue with --after ${page.nextCursor}`);
  }
  for (let wasLost = false; ; ) {
    for (const change of page.changes) json ? printJsonLine(change) : print(lineOf(change));
    if (page.changes.length < limit) await sleep(pollMs);
    const next = await api.changes({ after: page.nextCursor, limit }).catch(ifAway);
    const isLost = next === undefined;
    if (isLost !== wasLost) printError(isLost ? 'Connection lost, reconnecting …' : 'Connected again.');
    wasLost = isLost;
    page = next ?? { ...page, changes: [] };
  }
}

/** Undefined if the service may answer later. */
function ifAway(error: unknown): undefined {
  if (!isAway(error)) throw error;
}

const tones = {
  added: 'green',
  replaced: 'cyan',
  metadata: 'dim',
  transcript: 'dim',
  thumbnail: 'dim',
  gone: 'yellow',
  erased: 'red',
} as const;

/** `2026-01-31T12:00:00.000Z  added  ast_1  Film  cmp_1/prj_1/ast_1/film.mov (1 MiB)` */
function lineOf({ at, kind, assetId, name, objects: [media] }: Answer<'changes'>['changes'][number]): string {
  const file = media && `${media.key}${media.bytes === null ? '' : ` (${formatBytes(media.bytes)})`}`;
  return `${paint('dim', at)}  ${paint(tones[kind], kind)}  ${harmless([assetId, name, file].filter(Boolean).join('  '))}`;
}
