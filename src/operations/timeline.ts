import { z } from 'zod';
import type { Asset, Event, HistoryEntry, Outcome, Step } from '../store/database/schema.ts';
import { formatBytes, formatDuration } from '../units.ts';
import { time } from './fields.ts';

export const timelineEntry = z
  .object({
    at: time,
    what: z.string().describe('Stable code; `text` is a sentence.'),
    text: z.string(),
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
  const entry = (at: Date, what: string, text: string, syncId: string | null = null): TimelineEntry => ({
    at: at.toISOString(),
    what,
    text,
    syncId,
  });
  const told = history.flatMap((of) => entriesOf(of, entry));
  const known = (what: string) => told.some((it) => it.what === what);
  const entries = [
    ...(known('listed.new') ? [] : [entry(asset.firstSeenAt, 'listed.new', 'seen for the first time')]),
    ...(asset.mirroredAt && !known('attempt.mirrored')
      ? [entry(asset.mirroredAt, 'attempt.mirrored', 'mirrored')]
      : []),
    ...told,
    // The history itself has how an attempt ended.
    ...events
      .filter(({ kind }) => kind !== 'asset.failed')
      .map(({ at, kind, data }) => entry(at, kind, eventText(kind, data))),
    ...verified(asset.verifiedAt, told).map((at) => entry(at, 'verified', 'checksum verified')),
  ];
  return entries.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/** Storing an asset also verifies it, so that gets no entry of its own. */
function verified(at: Date | null, told: TimelineEntry[]): Date[] {
  const stored = told.findLast(({ what }) => what === 'step.stored' || what === 'step.found_in_the_bucket');
  return at === null || (stored && at.getTime() - Date.parse(stored.at) < 1000) ? [] : [at];
}

type Entry = (at: Date, what: string, text: string, syncId?: string | null) => TimelineEntry;

function entriesOf({ at, kind, syncId, data }: HistoryEntry, entry: Entry): TimelineEntry[] {
  switch (kind) {
    case 'listed': {
      const { news = 'new', state, due, fields, reason } = data;
      const again = fields ? `seen with a changed ${listOf(fields)}` : 'seen again, unchanged';
      const seen = news === 'new' ? 'seen for the first time' : again;
      const decided =
        reason ?? (due ? (state === 'mirrored' ? 'its record is written again' : 'to be mirrored') : state);
      return [entry(at, `listed.${news}`, `${seen}: ${decided}`, syncId)];
    }
    case 'skipped':
      return [entry(at, 'settings.skipped', `skipped by changed filters: ${data.rule}`, syncId)];
    case 'unskipped':
      return [entry(at, 'settings.letIn', 'no longer skipped after changed filters: to be mirrored', syncId)];
    case 'lost':
      return [entry(at, 'attempt.lost', 'its worker stopped responding; another worker continues', syncId)];
    case 'repaired': {
      const text = `${listOf(data.objects ?? [])} missing or different in the bucket: to be repaired`;
      return [entry(at, 'bucket.mended', text, syncId)];
    }
    case 'attempt': {
      const { outcome = 'again', steps = [], more = 0, ms = 0 } = data;
      const end = new Date(at.getTime() + ms);
      const rest = more > 0 ? [entry(end, 'attempt.more', `and ${more} more steps`, syncId)] : [];
      return [
        ...steps.map((step) =>
          entry(new Date(at.getTime() + step.ms), `step.${slug(step.did)}`, stepText(step), syncId),
        ),
        ...rest,
        entry(end, `attempt.${slug(outcome)}`, outcomeText(outcome, data), syncId),
      ];
    }
  }
}

const slug = (words: string) => words.replaceAll(' ', '_');
const listOf = (words: string[]) => new Intl.ListFormat('en').format(words);

function stepText(step: Step): string {
  const { bytes, of, parts, variant, status, reason, checksums } = step;
  const size = bytes === null || bytes === undefined ? 'of unknown length' : formatBytes(bytes);
  const which = variant === 'mp4' ? 'the mp4 rendition (there is no original)' : 'the original';
  switch (step.did) {
    case 'asked':
      return `the library answered: ${status ?? 'no status'}`;
    case 'found in the bucket':
      return `this version is already in the bucket (${size})`;
    case 'began':
      return `started to transfer ${which}, ${size}`;
    case 'went on':
      return `resumed the transfer of ${which}: ${parts} parts, ${size} of ${formatBytes(of ?? 0)}, were stored before`;
    case 'renewed the link':
      return 'the download link had expired; got a new one';
    case 'part failed':
      return `part ${step.part} failed, will retry: ${reason}`;
    case 'parts stored':
      return `stored ${parts} of ${of} parts`;
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

function outcomeText(outcome: Outcome, data: HistoryEntry['data']): string {
  const because = data.reason ? `: ${data.reason}` : '';
  const again = data.nextAt ? `; next try at ${data.nextAt}` : '';
  const took = ` (${formatDuration(data.ms ?? 0)})`;
  switch (outcome) {
    case 'mirrored':
      return `mirrored${took}${because}${data.nextAt ? `; follow-up check at ${data.nextAt}` : ''}`;
    case 'processing':
      return `still transcoding at the library${again}`;
    case 'unavailable':
      return `unavailable${because}`;
    case 'failed':
      return `failed${because}`;
    case 'again':
      return `${data.reason ? `attempt failed${because}` : 'returned to the queue'}${again}`;
    case 'started over':
      return 'the file in the library changed: starting over';
    case 'gave up':
      return `transcript or thumbnail given up${because}`;
    case 'skipped':
      return data.reason ?? 'skipped by a filter';
    case 'handed over':
      return 'skipped by a filter of its connection, and taken over by another connection';
  }
}

function eventText(kind: string, data: Record<string, unknown>): string {
  if (kind === 'asset.gone') return 'no longer in the library';
  const action = /^operator\.(.+)$/.exec(kind)?.[1];
  return action ? `operator: ${action} (${String(data.outcome ?? 'done')})` : kind;
}
