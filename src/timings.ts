/**
 * Waits that decide how soon work goes on after a crash, in ms. Tests pass shorter ones.
 * A heartbeat must come several times per lease, and the fence margin must be shorter than the lease.
 */
export const defaultTimings = {
  /** Lease of an asset, its renewal, and how much of it must be left before something that cannot be undone. */
  assetLease: 20_000,
  heartbeat: 5_000,
  fenceMargin: 8_000,
  /** A job that no worker has taken for this long counts as lost; how often lost jobs are looked for. */
  staleJob: 20_000,
  sweep: 5_000,
  /** How long a job of a killed process stays with it; how often BullMQ looks for such jobs. */
  jobLock: 15_000,
  stalledCheck: 10_000,
  syncLease: 45_000,
  verificationLease: 45_000,
  /** How long a verification waits after an error; how often is asked whether the whole bucket is to be compared again. */
  verificationRetry: 10_000,
  routineCheck: 5_000,
  /** How often the records are asked for work that nothing tells of: assets that fall due, requested verifications. */
  poll: 1_000,
  /** How long the circuit breaker of the bucket stays open at first. */
  breakerCheck: 2_000,
  /** The first wait after a failed attempt at an asset. */
  firstRetry: 1_000,
};
export type Timings = typeof defaultTimings;
