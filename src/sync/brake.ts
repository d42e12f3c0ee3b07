import type { HeldChanges, HeldKind } from '../store/database/schema.ts';
import type { Run, SyncDeps } from './deps.ts';

/** A change is held if it affects more than `assets` assets of a company, and more than `percent` of its known assets. */
export interface BrakeLimit {
  percent: number;
  assets: number;
}

/** The limits, unless the settings of a connection have others. */
const brakeLimits: Record<HeldKind, BrakeLimit> = {
  missing: { percent: 50, assets: 1 },
  replaced: { percent: 20, assets: 10 },
};

const settingNames: Record<HeldKind, string> = { missing: 'holdMissing', replaced: 'holdReplaced' };

export function limitOf(settings: Record<string, unknown>, kind: HeldKind): BrakeLimit {
  return (settings[settingNames[kind]] as BrakeLimit | undefined) ?? brakeLimits[kind];
}

/** Whether a change may be an error or an attack. For missing assets, exactly the percentage is enough. */
export function isTooMany(
  kind: HeldKind,
  { count, known }: Pick<HeldChanges, 'count' | 'known'>,
  { percent, assets }: BrakeLimit,
): boolean {
  const excess = count * 100 - percent * known;
  return count > assets && (kind === 'missing' ? excess >= 0 : excess > 0);
}

const texts: Record<HeldKind, (held: Pick<HeldChanges, 'count' | 'known'>) => string> = {
  missing: ({ count, known }) => `${count} of ${known} known assets are missing in the library; none is marked as gone`,
  replaced: ({ count, known }) =>
    `the library has other files for ${count} of ${known} mirrored assets; none is replaced`,
};
const accepting: Record<HeldKind, string> = { missing: '--accept-gone', replaced: '--accept-replaced' };

/** Reports a company whose changes are held. `isNew`: they were not held before. */
export function reportHeld(
  { log }: Pick<SyncDeps, 'log'>,
  { sync: { connectionId }, problems }: Run,
  held: HeldChanges & { kind: HeldKind; companyId: string; isNew: boolean },
): void {
  const { kind, companyId, count, known, isNew } = held;
  if (isNew) log.warn({ event: 'company.held', connectionId, companyId, kind, count, known }, 'company held');
  const command = `asset-mirror resync ${connectionId} --company ${companyId} ${accepting[kind]}`;
  problems.addHeld(`company ${companyId}: ${texts[kind](held)}. To accept it: ${command}`);
}
