/** One result of a probe. */
export interface Finding {
  area: 'configuration' | 'database' | 'queue' | 'bucket' | 'library';
  /** What was checked, in a word or two. */
  what: string;
  found: string;
  /** What the mirror does because of this finding. */
  chosen?: string;
  /** What the operator can do about this finding. */
  remedy?: string;
  /** `wrong`: something does not work, or will not. `note`: it works, but the operator should know. */
  level: 'ok' | 'note' | 'wrong';
}

/** Makes findings of one area, by level. */
export const findingsOn = (area: Finding['area']) => ({
  ok(what: string, found: string, chosen?: string): Finding {
    return { area, what, found, ...(chosen && { chosen }), level: 'ok' };
  },
  note(what: string, found: string, remedy?: string): Finding {
    return { area, what, found, ...(remedy && { remedy }), level: 'note' };
  },
  wrong(what: string, found: string, remedy?: string): Finding {
    return { area, what, found, ...(remedy && { remedy }), level: 'wrong' };
  },
});

/** Compares another machine's clock with ours: signatures and expiry times need them close. */
export function clockFinding(area: Finding['area'], differenceMs: number, whose: string): Finding {
  const seconds = Math.round(Math.abs(differenceMs) / 1000);
  const what = 'clock';
  if (seconds <= 5) return { area, what, found: `within ${Math.max(1, seconds)} s of ${whose}`, level: 'ok' };
  return {
    area,
    what,
    found: `this machine is ${seconds} s ${differenceMs > 0 ? 'behind' : 'ahead of'} ${whose}`,
    remedy: 'set the clock by NTP (timedatectl set-ntp true)',
    level: seconds < 60 ? 'note' : 'wrong',
  };
}
