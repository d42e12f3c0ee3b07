import type { VerificationCounts, VerificationOptions } from '../store/database/schema.ts';
import type { Finding } from './finding.ts';

export const nothingFound: VerificationCounts = {
  lines: 0,
  same: 0,
  missing: 0,
  foreign: 0,
  different: 0,
  errors: 0,
  absent: 0,
  skipped: 0,
  archived: 0,
  moving: 0,
  assets: 0,
  assetsTotal: 0,
  bytesRead: 0,
  repaired: 0,
};

const names = { '=': 'same', '-': 'missing', '+': 'foreign', '*': 'different', '!': 'errors' } as const;

/** The count that a finding adds to. */
export function countOf({ mark, difference, skipped }: Exclude<Finding, 'moving'>) {
  if (mark !== '-' || difference) return names[mark];
  return skipped ? ('skipped' as const) : ('absent' as const);
}

/** Whether foreign objects are only counted: by a scheduled verification, and on request. */
export const ignoresForeign = ({ scheduled, ignoreForeign }: VerificationOptions): boolean =>
  scheduled === true || ignoreForeign === true;

export function differencesIn(counts: Partial<VerificationCounts>, options: VerificationOptions): number {
  const { missing = 0, foreign = 0, different = 0, errors = 0 } = counts;
  return missing + different + errors + (ignoresForeign(options) ? 0 : foreign);
}
