import { defaultTimings, type Timings } from '../../src/floor/timings.ts';

/** Tests that kill a process wait until others notice. Long enough for a busy machine. */
export const shortTimings: Timings = {
  ...defaultTimings,
  assetLease: 5_000,
  staleJob: 5_000,
  sweep: 1_000,
  jobLock: 4_000,
  stalledCheck: 1_000,
  syncLease: 6_000,
  verificationLease: 6_000,
  verificationRetry: 1_000,
  scheduleCheck: 1_000,
  poll: 250,
  breakerCheck: 500,
  firstRetry: 250,
};
