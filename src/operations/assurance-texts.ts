import type { z } from 'zod';
import { dayMs, formatBytes, formatDuration } from '../units.ts';
import type { drillSummary } from './drills.ts';
import type { scrubStatus } from './scrub.ts';

/** What the sentences say. */
interface Answers {
  at: string;
  completeness: { expected: number; mirrored: number; bytes: number };
  onlyInLibrary: { assets: number; bytes: number; unknownSize: number };
  freshness: { connections: number; late: number };
  verification: z.infer<typeof scrubStatus>;
  inventory: { ok: boolean; number: number; day: string; keyId: string | null } | null;
  drill: (z.infer<typeof drillSummary> & { ok: boolean }) | null;
}

/** The six answers as sentences, for the dashboard and the report. An answer that is not good says why. */
export function textsOf(answers: Answers, drillInterval: number | undefined) {
  const now = Date.parse(answers.at);
  return {
    completeness: completenessText(answers.completeness),
    onlyInLibrary: onlyInLibraryText(answers.onlyInLibrary),
    freshness: freshnessText(answers.freshness),
    verification: verificationText(answers.verification),
    inventory: inventoryText(answers.inventory, now),
    drill: drillText(answers.drill, now, drillInterval),
  };
}

const number = (n: number) => n.toLocaleString('en');
const counted = (n: number, one: string) => `${number(n)} ${one}${n === 1 ? '' : 's'}`;
const period = (ms: number) => (ms < 2 * dayMs ? formatDuration(ms) : counted(Math.floor(ms / dayMs), 'day'));

function completenessText({ expected, mirrored, bytes }: Answers['completeness']): string {
  // Rounded down: 100 % means all.
  const share = expected === 0 ? '' : ` (${Math.floor((1000 * mirrored) / expected) / 10} %)`;
  return `${number(mirrored)} of ${counted(expected, 'asset')} with a file are mirrored${share}, ${formatBytes(bytes)}`;
}

function onlyInLibraryText({ assets, bytes, unknownSize }: Answers['onlyInLibrary']): string {
  if (assets === 0) return 'Nothing: everything that is not skipped is in the bucket';
  const unknown = unknownSize > 0 ? `, ${number(unknownSize)} of them of unknown size` : '';
  return `${formatBytes(bytes)} in ${counted(assets, 'asset')}${unknown}`;
}

function freshnessText({ connections, late }: Answers['freshness']): string {
  if (connections === 0) return 'No connection is active';
  if (late > 0) return `${number(late)} of ${counted(connections, 'active connection')} not synced in time`;
  return connections === 1
    ? 'The active connection was synced in time'
    : `All ${number(connections)} active connections were synced in time`;
}

function verificationText({ cycle, onTime, unverifiable }: Answers['verification']): string {
  const others = unverifiable > 0 ? `; ${counted(unverifiable, 'file')} cannot be verified` : '';
  if (cycle === null) return `The scrub is off: files are not read back${others}`;
  return onTime
    ? `Each file is read back within ${period(cycle)}${others}`
    : `The scrub is late: not every file is read back within ${period(cycle)}${others}`;
}

function inventoryText(inventory: Answers['inventory'], now: number): string {
  if (!inventory) return 'There is no inventory yet';
  const name = `Inventory ${number(inventory.number)} of ${inventory.day}`;
  if (inventory.keyId === null) return `${name} is not signed`;
  return inventory.ok ? `${name} is signed` : `${name} is signed, but ${period(now - Date.parse(inventory.day))} old`;
}

function drillText(drill: Answers['drill'], now: number, interval: number | undefined): string {
  if (drill) {
    const isOld = !drill.ok && drill.status === 'passed';
    return `${drill.text}${isOld ? `; but this drill is ${period(now - Date.parse(drill.finishedAt ?? ''))} old` : ''}`;
  }
  return interval === undefined
    ? 'No restore drill has ended yet, and none is scheduled: DRILL_INTERVAL is off'
    : 'No restore drill has ended yet; the first one is made within a day of the first connection';
}
