/** One result of a probe. */
export interface Finding {
  area: 'configuration' | 'database' | 'queue' | 'bucket' | 'library';
  /** What was checked, in a word or two. */
  what: string;
  found: string;
  /** What the mirror does because of it. */
  chosen?: string;
  /** What the operator can do about it. */
  remedy?: string;
  /** `wrong`: something does not work, or will not. `note`: it works, but the operator should know. */
  level: 'ok' | 'note' | 'wrong';
}

/** Makes findings of one area. */
export const findingsOn = (area: Finding['area']) => ({
  ok(what: string, found: string, chosen?: string): Finding {
    return { area, what, found, ...(chosen && { chosen }), level: 'ok' };
  },
  not(level: 'note' | 'wrong', what: string, found: string, remedy?: string): Finding {
    return { area, what, found, ...(remedy && { remedy }), level };
  },
});

/** Splits the message of an error, `what is wrong; what to do about it`. */
export function splitMessage(reason: string): { found: string; remedy?: string } {
  const at = reason.indexOf('; ');
  if (at < 0) return { found: reason };
  // An error code and the other side's message may follow. They are for logs only.
  return { found: reason.slice(0, at), remedy: reason.slice(at + 2).replace(/ \([A-Z]\w+\)(: .*)?$/s, '') };
}

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
