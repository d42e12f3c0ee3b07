/** The time between incremental syncs of a connection, in ms, and why: its own setting, recent uploads, or neither. */
export interface PollInterval {
  interval: number;
  reason: 'set' | 'active' | 'idle';
}

/** What the interval of a connection depends on. `newsAt`: when a sync last found new or changed assets. */
export interface Polled {
  settings: Record<string, unknown>;
  newsAt: Date | null;
}

/** After news, this many syncs follow at the shortest interval; then it doubles in periods of the same length. */
const syncsAfterNews = 4;

/** An interval that was set for a connection is kept. Other intervals are short after news, and then grow to the idle interval. */
export function pollInterval(
  { settings, newsAt }: Polled,
  now: number,
  { interval: idle, intervalActive: active }: { interval: number; intervalActive: number },
): PollInterval {
  if (typeof settings.syncInterval === 'number') return { interval: settings.syncInterval, reason: 'set' };
  const quiet = newsAt === null ? Number.POSITIVE_INFINITY : Math.max(0, now - newsAt.getTime());
  const interval = active * 2 ** Math.floor(quiet / (syncsAfterNews * active));
  return interval < idle ? { interval, reason: 'active' } : { interval: idle, reason: 'idle' };
}
