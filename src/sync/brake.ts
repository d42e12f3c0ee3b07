import type { HeldChanges, HeldKind } from '../store/database/schema.ts';
import type { Run, SyncDeps } from './deps.ts';

/** A change of more than `assets` assets of a company, and of `percent` of all that are known, is held. */
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

/** Whether a change looks like an error or an attack. Missing assets are held from the percentage on, others above it. */
export function isTooMany(
  kind: HeldKind,
  { count, known }: Pick<HeldChanges, 'count' | 'known'>,
  { percent, assets }: BrakeLimit,
): boolean {
  const excess = count * 100 - percent * known;
  return count > assets && (kind === 'missing' ? excess >= 0 : excess > 0);
}

const texts: Record<HeldKind, (held: Pick<HeldChanges, 'count' | 'known'>) => string> = {
  missing: ({ count, known }) =>
    `its listing lacks ${count} of ${known} known assets; nothing is marked as gone. If they are`,
  replaced: ({ count, known }) =>
    `the library has other files for ${count} of ${known} mirrored assets; none is replaced. If they are right`,
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
  problems.addHeld(`company ${companyId}: ${texts[kind](held)}: ${command}`);
}
