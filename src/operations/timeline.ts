import { z } from 'zod';
import type { Asset, Event, HistoryEntry, Outcome, Step } from '../store/database/schema.ts';
import { formatBytes, formatDuration } from '../units.ts';
import { time } from './fields.ts';

export const timelineEntry = z
  .object({
    at: time,
    what: z.string().describe('Stable; `text` says it in words.'),
    text: z.string(),
    syncId: z.string().nullable().describe('The run that last saw something new in the asset.'),
  })
  .meta({ id: 'TimelineEntry' });
export type TimelineEntry = z.infer<typeof timelineEntry>;

/** What happened to an asset, oldest first, in words: from what is kept of it, and from what the row itself still knows. */
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
  const told = history.flatMap((happening) => entriesOf(happening, entry));
  const known = (what: string) => told.some((it) => it.what === what);
  const entries = [
    ...(known('listed.new') ? [] : [entry(asset.firstSeenAt, 'listed.new', 'seen for the first time')]),
    ...(asset.mirroredAt && !known('attempt.mirrored')
      ? [entry(asset.mirroredAt, 'attempt.mirrored', 'mirrored')]
      : []),
    ...told,
    // How a lease ended is told by the lease.
    ...events
      .filter(({ kind }) => kind !== 'asset.failed')
      .map(({ at, kind, data }) => entry(at, kind, eventText(kind, data))),
    ...verified(asset.verifiedAt, told).map((at) =>
      entry(at, 'verified', 'its bytes were held against their checksum'),
    ),
  ];
  return entries.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

/** What is stored is compared then, which is told there. */
function verified(at: Date | null, told: TimelineEntry[]): Date[] {
  const stored = told.findLast(({ what }) => what === 'step.stored' || what === 'step.found_in_the_bucket');
  return at === null || (stored && at.getTime() - Date.parse(stored.at) < 1000) ? [] : [at];
}

type Entry = (at: Date, what: string, text: string, syncId?: string | null) => TimelineEntry;

function entriesOf({ at, kind, syncId, data }: HistoryEntry, entry: Entry): TimelineEntry[] {
  switch (kind) {
    case 'listed': {
      const { news = 'new', state, due, fields, reason } = data;
      const again = fields ? `seen with another ${listOf(fields)}` : 'seen again as it was';
      const seen = news === 'new' ? 'seen for the first time' : again;
      const decided =
        reason ?? (due ? (state === 'mirrored' ? 'its record is written anew' : 'to be mirrored') : state);
      return [entry(at, `listed.${news}`, `${seen}: ${decided}`, syncId)];
    }
    case 'skipped':
      return [entry(at, 'settings.skipped', `skipped by changed settings: ${data.rule}`, syncId)];
    case 'unskipped':
      return [entry(at, 'settings.letIn', 'let in by changed settings: to be mirrored', syncId)];
    case 'lost':
      return [entry(at, 'attempt.lost', 'its worker was not heard of any more; another goes on with it', syncId)];
    case 'repaired': {
      const text = `the bucket lacked ${listOf(data.objects ?? [])} of it, or had another: to be made again`;
      return [entry(at, 'bucket.mended', text, syncId)];
    }
    case 'attempt': {
      const { outcome = 'again', steps = [], more = 0, ms = 0 } = data;
      const end = new Date(at.getTime() + ms);
      const rest = more > 0 ? [entry(end, 'attempt.more', `and ${more} steps that are not told`, syncId)] : [];
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
  const which = variant === 'mp4' ? 'the mp4 rendition, for there is no original' : 'the original';
  switch (step.did) {
    case 'asked':
      return `the library says ${status ?? 'no status'}`;
    case 'found in the bucket':
      return `the bucket has this version already (${size})`;
    case 'began':
      return `began with ${which}, ${size}`;
    case 'went on':
      return `went on with ${which}: ${parts} parts, ${size} of ${formatBytes(of ?? 0)}, were stored before`;
    case 'renewed the link':
      return 'its link was refused; the library gave a new one';
    case 'part failed':
      return `part ${step.part} failed, and is fetched again: ${reason}`;
    case 'parts stored':
      return `stored ${parts} of ${of} parts`;
    case 'stored': {
      const sums = Object.entries(checksums ?? {}).map(([name, value]) => `${name} ${value}`);
      return `stored and compared: ${size}${sums.length > 0 ? `, ${sums.join(', ')}` : ''}`;
    }
    case 'thumbnail':
    case 'transcript':
      return `${step.did}: ${artefactText[status ?? ''] ?? status}`;
    case 'recorded':
      return 'its record was written';
  }
}

const artefactText: Record<string, string> = {
  none: 'the library has none',
  pending: 'not there yet',
  mirrored: 'stored',
  no_speech: 'nobody speaks in it',
  gave_up: 'given up',
};

function outcomeText(outcome: Outcome, data: HistoryEntry['data']): string {
  const because = data.reason ? `: ${data.reason}` : '';
  const again = data.nextAt ? `; comes back at ${data.nextAt}` : '';
  const took = ` (${formatDuration(data.ms ?? 0)})`;
  switch (outcome) {
    case 'mirrored':
      return `mirrored${took}${because}${data.nextAt ? `; what is missing beside it is looked for at ${data.nextAt}` : ''}`;
    case 'processing':
      return `still transcoding at the library${again}`;
    case 'unavailable':
      return `unavailable${because}`;
    case 'failed':
      return `failed${because}`;
    case 'again':
      return `${data.reason ? `did not work${because}` : 'handed back'}${again}`;
    case 'started over':
      return 'another version, or none: the media is looked at again';
    case 'gave up':
      return `what was missing beside the media was given up${because}`;
    case 'skipped':
      return data.reason ?? 'skipped by a filter';
    case 'handed over':
      return 'skipped by a filter of its connection, and taken over by one that wants it';
  }
}

function eventText(kind: string, data: Record<string, unknown>): string {
  if (kind === 'asset.gone') return 'no longer in the library';
  const deed = /^operator\.(.+)$/.exec(kind)?.[1];
  return deed ? `an operator: ${deed} (${String(data.outcome ?? 'done')})` : kind;
}
