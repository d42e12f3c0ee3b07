import { z } from 'zod';
import type { Reason } from '../../floor/reason-codes.ts';
import { because, renderReason } from '../../floor/reasons.ts';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Asset, Event, HistoryEntry, LeaseOutcome, Step } from '../../store/database/schema.ts';
import { reasonAnswer, shownReason, time } from '../fields.ts';

export const timelineEntry = z
  .object({
    at: time,
    what: z.string().describe('Stable code; `text` is a sentence.'),
    text: z.string(),
    reason: reasonAnswer.nullable(),
    syncId: z.string().nullable().describe('The sync that last changed the asset.'),
  })
  .meta({ id: 'TimelineEntry' });
export type TimelineEntry = z.infer<typeof timelineEntry>;

/** The history of an asset, oldest first: the entries that are kept, completed from the asset itself. */
export function timelineOf(
  asset: Pick<Asset, 'firstSeenAt' | 'mirroredAt' | 'verifiedAt' | 'syncId'>,
  history: HistoryEntry[],
  events: Event[],
): TimelineEntry[] {
  const entries = history.flatMap(entriesOf);
  const isKnown = (what: string) => entries.some((it) => it.what === what);
  const completed = [
    ...(isKnown('listed.new') ? [] : [entry(asset.firstSeenAt, 'listed.new', 'seen for the first time')]),
    ...(asset.mirroredAt && !isKnown('attempt.mirrored')
      ? [entry(asset.mirroredAt, 'attempt.mirrored', 'mirrored')]
      : []),
    ...entries,
    ...events
      .filter(({ kind }) => !inHistory.has(kind))
      .map(({ at, kind, data }) => entry(at, kind, eventText(kind, data))),
    ...verified(asset.verifiedAt, entries).map((at) => entry(at, 'verified', 'checksum verified')),
  ];
  return completed.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

function entry(
  at: Date,
  what: string,
  text: string,
  { syncId = null, reason = null }: { syncId?: string | null; reason?: Reason | null | undefined } = {},
): TimelineEntry {
  return { at: at.toISOString(), what, text, reason: shownReason(reason), syncId };
}

/** Storing an asset also verifies it, so that gets no entry of its own. */
function verified(at: Date | null, entries: TimelineEntry[]): Date[] {
  const stored = entries.findLast(({ what }) => what === 'step.stored' || what === 'step.found_in_bucket');
  return at === null || (stored && at.getTime() - Date.parse(stored.at) < 1000) ? [] : [at];
}

function entriesOf({ at, kind, syncId, data }: HistoryEntry): TimelineEntry[] {
  const { reason } = data;
  switch (kind) {
    case 'listed':
      return [entry(at, `listed.${data.news ?? 'new'}`, listedText(data), { syncId, reason })];
    case 'attempt':
      return attemptEntries(at, syncId, data);
    case 'skipped':
      return [entry(at, 'settings.skipped', `filters changed; ${renderReason(reason!)}`, { syncId, reason })];
    case 'unskipped':
      return [entry(at, 'settings.unskipped', 'filters changed; no longer skipped', { syncId })];
    case 'lost':
      return [entry(at, 'attempt.lost', 'its worker stopped responding; another worker continues', { syncId })];
    case 'repaired': {
      const text = `missing or different in the bucket, to be repaired: ${listOf(data.objects ?? [])}`;
      return [entry(at, 'bucket.repaired', text, { syncId })];
    }
  }
}

type Data = HistoryEntry['data'];

function listedText({ news = 'new', state, due, fields, reason, replacement }: Data): string {
  if (replacement === 'released') return 'the file in the library may replace the stored one: to be mirrored';
  const again = fields ? `seen with a changed ${listOf(fields)}` : 'seen again, unchanged';
  const seen = news === 'new' ? 'seen for the first time' : again;
  if (replacement) return `${seen}: another file, set aside until the listing of its company ends`;
  if (reason) return `${seen}${because(reason)}`;
  const work = state === 'mirrored' ? 'its record is written again' : 'to be mirrored';
  return `${seen}: ${due ? work : state}`;
}

function attemptEntries(at: Date, syncId: string | null, data: Data): TimelineEntry[] {
  const { outcome = 'again', steps = [], more = 0, ms = 0, reason } = data;
  const after = (step: number) => new Date(at.getTime() + step);
  return [
    ...steps.map((step) => entry(after(step.ms), `step.${step.did}`, stepText(step), { syncId, reason: step.reason })),
    ...(more > 0 ? [entry(after(ms), 'attempt.more', `and ${more} more steps`, { syncId })] : []),
    entry(after(ms), `attempt.${outcome}`, outcomeText(outcome, data), { syncId, reason }),
  ];
}

const listOf = (words: string[]) => new Intl.ListFormat('en').format(words);

function stepText(step: Step): string {
  const { bytes, of, parts, variant, status, reason, checksums } = step;
  const size = bytes === null || bytes === undefined ? 'of unknown length' : formatBytes(bytes);
  const which = variant === 'mp4' ? 'the mp4 rendition (there is no original)' : 'the original';
  switch (step.did) {
    case 'library_answered':
      return `the library answered: ${status ?? 'no status'}`;
    case 'set_aside':
      return 'the library has another file; the next sync decides whether it may replace the stored one';
    case 'found_in_bucket':
      return `this version is already in the bucket (${size})`;
    case 'began':
      return `started to transfer ${which}, ${size}`;
    case 'resumed':
      return `resumed the transfer of ${which}: ${parts} parts, ${size} of ${formatBytes(of ?? 0)}, were stored before`;
    case 'link_renewed':
      return 'the download link had expired; got a new one';
    case 'part_failed':
      return `part ${step.part} failed, will retry${because(reason)}`;
    case 'parts_stored':
      return `stored ${parts} of ${of} parts`;
    case 'version_kept':
      return `kept the superseded file (${size})`;
    case 'stored': {
      const sums = Object.entries(checksums ?? {}).map(([name, value]) => `${name} ${value}`);
      return `stored and verified: ${size}${sums.length > 0 ? `, ${sums.join(', ')}` : ''}`;
    }
    case 'thumbnail':
    case 'transcript':
      return `${step.did}: ${sidecarText[status ?? ''] ?? status}`;
    case 'recorded':
      return 'record written';
  }
}

const sidecarText: Record<string, string> = {
  none: 'the library has none',
  pending: 'not available yet',
  mirrored: 'stored',
  no_speech: 'no speech',
  gave_up: 'given up',
};

function outcomeText(outcome: LeaseOutcome, { reason, nextAt, ms = 0 }: Data): string {
  const again = nextAt ? `; next try at ${nextAt}` : '';
  switch (outcome) {
    case 'mirrored': {
      const check = nextAt ? `; follow-up check at ${nextAt}` : '';
      return `mirrored (${formatDuration(ms)})${because(reason)}${check}`;
    }
    case 'processing':
      return `still transcoding at the library${again}`;
    case 'unavailable':
      return `unavailable${because(reason)}`;
    case 'failed':
      return `failed${because(reason)}`;
    case 'again':
      return `${reason ? `attempt failed${because(reason)}` : 'returned to the queue'}${again}`;
    case 'started_over':
      return 'starting over';
    case 'gave_up':
      return `follow-up check failed${because(reason)}`;
    case 'skipped':
      return renderReason(reason!);
    case 'handed_over':
      return 'skipped by a filter of its connection, and taken over by another connection';
  }
}

/** Outcomes of attempts. The history has them with more details. */
const inHistory = new Set(['asset.failed', 'asset.mirrored']);

const nameOf = (by: unknown) => (by as { name?: string } | null)?.name ?? 'an operator';

function eventText(kind: string, { companyId, recordedFor, outcome, reason, by }: Record<string, unknown>): string {
  switch (kind) {
    case 'asset.gone':
      return 'no longer in the library';
    case 'asset.damaged':
      return 'found damaged or missing in the bucket';
    case 'asset.replaced':
      return 'its file was replaced by the newer one of the library';
    case 'asset.transcript':
      return 'its transcript was stored';
    case 'asset.removed':
      return 'its objects were removed from the bucket';
    case 'asset.conflict':
      return `company ${companyId} lists another asset with this id, which was recorded for company ${recordedFor}`;
    case 'operator.retryAsset':
      return outcome === 'refused' ? `${nameOf(by)} tried to retry it. Refused: ${reason}` : `${nameOf(by)} retried it`;
    default:
      return kind.startsWith('operator.') ? `${nameOf(by)} was refused ${kind.slice('operator.'.length)}` : kind;
  }
}
