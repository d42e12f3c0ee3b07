/** Times in ms that decide how soon work continues after a crash. Tests pass shorter ones. */
export const defaultTimings = {
  /** Leases are renewed after a quarter of their time (see keep-lease.ts). */
  assetLease: 20_000,
  /** `staleJob`: a job that no worker takes for this long is lost. `sweep`: the interval of searches for lost jobs and other background work. */
  staleJob: 20_000,
  sweep: 5_000,
  /** How long a job of a killed process stays with it; how often BullMQ searches for such jobs. */
  jobLock: 15_000,
  stalledCheck: 10_000,
  syncLease: 45_000,
  /** Also of a scrub, a drill and an inventory. */
  verificationLease: 45_000,
  /** How long a verification waits after an error; how often to check whether a scheduled verification is due. */
  verificationRetry: 10_000,
  scheduleCheck: 5_000,
  /** How often to search the records for work without a notice: assets that became due, requested verifications. */
  poll: 1_000,
  /** How long a circuit breaker stays open at first. */
  breakerCheck: 2_000,
  /** The first wait after a failed attempt at an asset. */
  firstRetry: 1_000,
};
export type Timings = typeof defaultTimings;
