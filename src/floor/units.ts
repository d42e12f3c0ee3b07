/** Durations and sizes as people write them: `90s`, `5m`, `1h30m`; `16MiB`, `50MB`. */

export const dayMs = 86_400_000;

const milliseconds: Record<string, number> = { ms: 1, s: 1e3, m: 60e3, h: 3600e3, d: dayMs, w: 7 * dayMs };

/** Limits of sync intervals, in ms. */
export const syncIntervals = { least: 1000, most: 365 * 86400e3 };

/** Milliseconds, or undefined when the text is not a duration with units. */
export function parseDuration(text: string): number | undefined {
  const compact = text.replaceAll(' ', '');
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d|w))+$/.test(compact)) return undefined;
  let total = 0;
  for (const [, number, unit] of compact.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d|w)/g)) {
    total += Number(number) * milliseconds[unit!]!;
  }
  return Math.round(total);
}

const bytes: Record<string, number> = {
  b: 1,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
  kib: 2 ** 10,
  mib: 2 ** 20,
  gib: 2 ** 30,
  tib: 2 ** 40,
};

/** Bytes, or undefined when the text is not a size with units. */
export function parseSize(text: string): number | undefined {
  const match = /^(\d+(?:\.\d+)?) *([kmgt]?i?b)$/i.exec(text.trim());
  const unit = match && bytes[match[2]!.toLowerCase()];
  return unit ? Math.round(Number(match[1]) * unit) : undefined;
}

/** Bytes per second of a rate such as `20MiB/s`; undefined for any other text, and for 0. */
export function parseRate(text: string): number | undefined {
  const match = /^(.*\S) *\/ *s$/.exec(text.trim());
  return (match && parseSize(match[1]!)) || undefined;
}

/** `20%,10`: more than 20 percent, and more than 10. Undefined for any other text. */
export function parseChangeLimit(text: string): { percent: number; assets: number } | undefined {
  const match = /^(\d{1,3}) *% *, *(\d{1,9})$/.exec(text.trim());
  return match ? { percent: Number(match[1]), assets: Number(match[2]) } : undefined;
}

/** `1.5 GiB` */
export function formatBytes(count: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let value = count;
  let unit = 0;
  // A value that would be shown as 1024 is 1 of the next unit.
  while (value >= 1023.5 && unit < units.length - 1 && count >= 1024) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `450 ms`, `12.3 s`, `4m 05s`, `3h 20m`, `2d 4h` */
export function formatDuration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const two = (n: number) => String(n).padStart(2, '0');
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${two(Math.floor((s % 3600) / 60))}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

/** A duration as the dashboard shows it: `under 1 s`, `12 s`, `4 min`, `3 h`, `2 days` */
export function roughDuration(ms: number): string {
  if (ms > 0 && ms < 1000) return 'under 1 s';
  const s = ms / 1000;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

/** A time in a film: `1:23`, `1:02:03`. */
export function formatClock(ms: number): string {
  const seconds = Math.floor(ms / 1000);
  const minutes = Math.floor(seconds / 60);
  const parts = minutes < 60 ? [minutes, seconds % 60] : [Math.floor(minutes / 60), minutes % 60, seconds % 60];
  return parts.map((part, index) => (index === 0 ? String(part) : String(part).padStart(2, '0'))).join(':');
}
