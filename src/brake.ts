import type { Log } from './log.ts';

/** Changes of a company that wait until an operator accepts them, if they are too many at once. */
export type HeldKind = 'missing' | 'replaced' | 'removed';

/** `count` of `known` assets would change. */
export interface HeldChanges {
  count: number;
  known: number;
  /** Ids of some of them. */
  sample: string[];
}

/** A change of more than `assets` assets of a company, and of `percent` of all that are known, is held. */
export interface HoldLimit {
  percent: number;
  assets: number;
}

/** The limits, unless the settings of a connection have others. */
const limits: Record<string, HoldLimit> = {
  holdMissing: { percent: 50, assets: 1 },
  holdReplaced: { percent: 20, assets: 10 },
};

/** A removal ends a good copy as a replacement does, so they have one limit. */
const kinds = {
  missing: { setting: 'holdMissing', accept: '--accept-gone' },
  replaced: { setting: 'holdReplaced', accept: '--accept-replaced' },
  removed: { setting: 'holdReplaced', accept: '--accept-removed' },
};

export function limitOf(settings: Record<string, unknown>, kind: HeldKind): HoldLimit {
  const { setting } = kinds[kind];
  return (settings[setting] ?? limits[setting]) as HoldLimit;
}

/** Whether a change looks like an error or an attack. Missing assets are held from the percentage on, others above it. */
export function isTooMany(
  kind: HeldKind,
  { count, known }: Pick<HeldChanges, 'count' | 'known'>,
  settings: Record<string, unknown>,
): boolean {
  const { percent, assets } = limitOf(settings, kind);
  const excess = count * 100 - percent * known;
  return count > assets && (kind === 'missing' ? excess >= 0 : excess > 0);
}

/** A company whose changes are held. */
export type Held = Pick<HeldChanges, 'count' | 'known'> & { kind: HeldKind; connectionId: string; companyId: string };

export function logHeld(log: Log, { connectionId, companyId, kind, count, known }: Held): void {
  log.warn({ event: 'company.held', connectionId, companyId, kind, count, known }, 'company held');
}

/** What is held, and how to accept it. `company`: its name, for people. */
export function heldText({ connectionId, companyId, kind, count, known }: Held, company: string): string {
  const share = `${count} of ${known}`;
  const what = {
    missing: `${share} assets of ${company} are missing in the library; none is marked as gone`,
    replaced: `the library has other files for ${share} mirrored assets of ${company}; none is replaced`,
    removed: `GONE_RETENTION would remove ${share} mirrored assets of ${company}; none is removed`,
  }[kind];
  return `${what}. To accept it: asset-mirror resync ${connectionId} --company ${companyId} ${kinds[kind].accept}`;
}
