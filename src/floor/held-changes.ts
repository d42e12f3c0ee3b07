/** Changes of a company that wait until an operator accepts them, because they are too many at once. */
export type HeldKind = 'missing' | 'replaced' | 'removed';

/** How many ids the held changes of a company name. */
export const sampleSize = 10;

/** `count` of `known` assets would change. */
export interface HeldChanges {
  count: number;
  known: number;
  /** Ids of some of them. */
  sample: string[];
}

/** Changes of more than `assets` assets of a company, and of more than `percent` of all that are known, are held. */
export interface ChangeLimit {
  percent: number;
  assets: number;
}

/** The limits, unless the settings of a connection have others. */
const limits: Record<string, ChangeLimit> = {
  holdMissing: { percent: 50, assets: 1 },
  holdReplaced: { percent: 20, assets: 10 },
};

/** A removal ends a good copy as a replacement does, so they have one limit. */
const kinds = {
  missing: { setting: 'holdMissing', accept: '--accept-gone' },
  replaced: { setting: 'holdReplaced', accept: '--accept-replaced' },
  removed: { setting: 'holdReplaced', accept: '--accept-removed' },
};

export function changeLimitOf(settings: Record<string, unknown>, kind: HeldKind): ChangeLimit {
  const { setting } = kinds[kind];
  return (settings[setting] ?? limits[setting]) as ChangeLimit;
}

/** Whether this many changes look like an error or an attack. For missing assets, exactly the percentage is enough. */
export function isTooMany(
  kind: HeldKind,
  { count, known }: Pick<HeldChanges, 'count' | 'known'>,
  settings: Record<string, unknown>,
): boolean {
  const { percent, assets } = changeLimitOf(settings, kind);
  const excess = count * 100 - percent * known;
  return count > assets && (kind === 'missing' ? excess >= 0 : excess > 0);
}

/** A company whose changes are held. */
export type Held = Pick<HeldChanges, 'count' | 'known'> & { kind: HeldKind; connectionId: string; companyId: string };

/** The part of `Log` that is needed here. An import of log.ts would be circular: it imports errors.ts, and that imports reasons.ts. */
interface Warnings {
  warn(fields: object, message: string): void;
}

export function logHeld(log: Warnings, { connectionId, companyId, kind, count, known }: Held): void {
  log.warn(
    { event: 'company.held', connectionId, companyId, kind, count, known },
    'company held, an operator must accept its changes',
  );
}

/** Says which changes are held, and how to accept them. `company`: the name of the company, for people. */
export function heldText({ connectionId, companyId, kind, count, known }: Held, company: string): string {
  const share = `${count} of ${known}`;
  const what = {
    missing: `${share} assets of ${company} are missing in the library; none is marked as gone`,
    replaced: `the library has other files for ${share} mirrored assets of ${company}; none is replaced`,
    removed: `GONE_RETENTION would remove ${share} mirrored assets of ${company}; none is removed`,
  }[kind];
  return `${what}. To accept it: asset-mirror resync ${connectionId} --company ${companyId} ${kinds[kind].accept}`;
}
