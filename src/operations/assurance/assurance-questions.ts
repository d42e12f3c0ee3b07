import { z } from 'zod';
import { dayMs, formatBytes, formatDuration } from '../../floor/units.ts';
import { time } from '../fields.ts';
import type { drillSummary } from './drills.ts';
import type { inBucketStates } from './manifest-in-bucket.ts';
import type { scrubStatus } from './scrub.ts';

const questionCodes = ['completeness', 'onlyInLibrary', 'freshness', 'verification', 'inventory', 'drill'] as const;

export const question = z.object({
  code: z.enum(questionCodes).describe('The field that has the facts.'),
  question: z.string(),
  ok: z.boolean(),
  problem: z
    .string()
    .nullable()
    .describe('What is known to be wrong, in one word; null: nothing, or it needs a check.'),
  text: z.string().describe('The answer as a sentence. It may change.'),
  at: time.nullable().describe('The date of the answer; null: never.'),
  note: z.string().nullable().describe('What happened at that time.'),
});

/** The facts that the sentences state. */
interface Answers {
  at: string;
  completeness: { ok: boolean; expected: number; mirrored: number; bytes: number };
  onlyInLibrary: { ok: boolean; assets: number; bytes: number; unknownSize: number; since: string | null };
  freshness: { ok: boolean; connections: number; late: number; neverSynced: number; oldestSync: string | null };
  findings: { objects: number; oldest: string | null };
  verification: z.infer<typeof scrubStatus> & { ok: boolean };
  inventory: Inventory | null;
  drill: (z.infer<typeof drillSummary> & { ok: boolean }) | null;
}

interface Inventory {
  ok: boolean;
  number: number;
  day: string;
  writtenAt: string;
  keyId: string | null;
  inBucket: (typeof inBucketStates)[number];
}

/** The six questions of an auditor with their answers, for the dashboard and the report. An answer that is not good says why. */
export function questionsOf(answers: Answers, drillInterval: number | undefined): z.infer<typeof question>[] {
  const { at, completeness, onlyInLibrary, freshness, findings, verification, inventory, drill } = answers;
  const now = Date.parse(at);
  const damaged = findings.objects > 0 ? 'Damaged' : null;
  return [
    {
      code: 'completeness',
      question: 'Is it complete?',
      ok: completeness.ok,
      problem: damaged,
      text: completenessText(completeness, findings),
      at,
      note: null,
    },
    {
      code: 'onlyInLibrary',
      question: 'What is only in the library?',
      ok: onlyInLibrary.ok,
      problem: null,
      text: onlyInLibraryText(onlyInLibrary, freshness),
      at: onlyInLibrary.since ?? at,
      note: onlyInLibrary.since && 'the oldest of them was found',
    },
    {
      code: 'freshness',
      question: 'Is it fresh?',
      ok: freshness.ok,
      problem: null,
      text: freshnessText(freshness),
      at: freshness.oldestSync,
      note: freshness.oldestSync && (freshness.connections === 1 ? 'the last sync' : 'the oldest of the last syncs'),
    },
    {
      code: 'verification',
      question: 'Is it intact?',
      ok: verification.ok,
      problem: damaged,
      text: verificationText(verification, findings),
      at: verification.oldest,
      note: verification.oldest && 'the oldest verification of a file',
    },
    {
      code: 'inventory',
      question: 'Is it proven?',
      ok: inventory?.ok ?? false,
      problem: inventory && inventoryProblems[inventory.inBucket],
      text: inventoryText(inventory, now),
      at: inventory?.writtenAt ?? null,
      note: null,
    },
    {
      code: 'drill',
      question: 'Can it be recovered?',
      ok: drill?.ok ?? false,
      problem: drill?.status === 'failed' ? 'Failed' : null,
      text: drillText(drill, now, drillInterval),
      at: drill?.finishedAt ?? null,
      note: null,
    },
  ];
}

const inventoryProblems = { same: null, missing: 'Missing', different: 'Differs', unknown: null };

const number = (n: number) => n.toLocaleString('en');
const counted = (n: number, one: string) => `${number(n)} ${one}${n === 1 ? '' : 's'}`;
const period = (ms: number) => (ms < 2 * dayMs ? formatDuration(ms) : counted(Math.floor(ms / dayMs), 'day'));

const foundText = ({ objects }: Answers['findings']) =>
  `${counted(objects, 'object')} missing, different or unreadable in the bucket`;

function completenessText({ expected, mirrored, bytes }: Answers['completeness'], findings: Answers['findings']) {
  // Rounded down: 100 % means all.
  const share = expected === 0 ? '' : ` (${Math.floor((1000 * mirrored) / expected) / 10} %)`;
  const text = `${number(mirrored)} of ${counted(expected, 'asset')} with a file are mirrored${share}, ${formatBytes(bytes)}`;
  return findings.objects > 0 ? `${text}, but ${foundText(findings)}` : text;
}

function onlyInLibraryText(
  { assets, bytes, unknownSize }: Answers['onlyInLibrary'],
  { connections, neverSynced }: Answers['freshness'],
): string {
  if (assets === 0 && connections === 0)
    return 'Nothing is known: the library is not listed without an active connection';
  if (assets === 0 && neverSynced > 0) return 'Nothing that is known: the first sync has not ended';
  if (assets === 0) return 'Nothing: everything that is not skipped is in the bucket';
  const unknown = unknownSize > 0 ? `, ${number(unknownSize)} of them of unknown size` : '';
  return `${formatBytes(bytes)} in ${counted(assets, 'asset')}${unknown}`;
}

function freshnessText({ connections, late, neverSynced }: Answers['freshness']): string {
  if (connections === 0) return 'No connection is active';
  if (late > 0) return `${number(late)} of ${counted(connections, 'active connection')} not synced in time`;
  if (neverSynced > 0)
    return `The first sync of ${number(neverSynced)} of ${counted(connections, 'active connection')} has not ended`;
  return connections === 1
    ? 'The active connection was synced in time'
    : `All ${number(connections)} active connections were synced in time`;
}

function verificationText(verification: Answers['verification'], findings: Answers['findings']): string {
  const { cycle, onTime, unverifiable } = verification;
  const text = [
    ...(findings.objects > 0 ? [`${foundText(findings)} since ${findings.oldest?.slice(0, 10)}`] : []),
    scrubText(cycle, onTime),
    ...(unverifiable > 0 ? [`${counted(unverifiable, 'file')} cannot be verified`] : []),
  ].join('; ');
  return `${text[0]?.toUpperCase()}${text.slice(1)}`;
}

function scrubText(cycle: number | null, onTime: boolean | null): string {
  if (cycle === null) return 'the scrub is off: files are not read back';
  return onTime
    ? `each file is read back within ${period(cycle)}`
    : `the scrub is late: not every file is read back within ${period(cycle)}`;
}

function inventoryText(inventory: Answers['inventory'], now: number): string {
  if (!inventory) return 'There is no inventory yet';
  const name = `Inventory ${number(inventory.number)} of ${inventory.day}`;
  if (inventory.inBucket === 'missing')
    return `The manifest of inventory ${number(inventory.number)} is missing in the bucket`;
  if (inventory.inBucket === 'different') {
    return `The manifest of inventory ${number(inventory.number)} in the bucket differs from the one that was written`;
  }
  const known =
    inventory.inBucket === 'unknown'
      ? '; the bucket does not answer, so it is unknown whether the manifest is there'
      : '';
  if (inventory.keyId === null) return `${name} is not signed${known}`;
  const age = now - Date.parse(inventory.day);
  return age < 2 * dayMs ? `${name} is signed${known}` : `${name} is signed, but ${period(age)} old${known}`;
}

function drillText(drill: Answers['drill'], now: number, interval: number | undefined): string {
  if (drill) {
    const isOld = !drill.ok && drill.status === 'passed';
    return `${drill.text}${isOld ? `; but this drill is ${period(now - Date.parse(drill.finishedAt ?? ''))} old` : ''}`;
  }
  return interval === undefined
    ? 'No restore drill has ended yet, and none is scheduled: DRILL_INTERVAL is off'
    : 'No restore drill has ended yet; the first one runs within a day of the first connection';
}
