const whole = new Intl.NumberFormat('en');
const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** @param {number} n */
export const number = (n) => whole.format(n);

/** @param {number} n @param {string} one @param {string} [many] */
export const counted = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

/** `1.5 GiB`; null: unknown. @param {number | null} count */
export function bytes(count) {
  if (count === null) return 'unknown';
  let value = count;
  let unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** A time in a film: `1:23`, `1:02:03`. @param {number} ms */
export function playTime(ms) {
  const seconds = Math.floor(ms / 1000);
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, String(seconds % 60).padStart(2, '0')];
  return h > 0 ? `${h}:${String(m).padStart(2, '0')}:${s}` : `${m}:${s}`;
}

/** `4 min` @param {number} seconds */
export function duration(seconds) {
  if (seconds > 0 && seconds < 1) return 'under 1 s';
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 36 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** `3 min ago`, `in 2 h` @param {string | number | null | undefined} at @param {string} [never] */
export function ago(at, never = 'never') {
  if (at === null || at === undefined) return never;
  const seconds = (Date.now() - new Date(at).getTime()) / 1000;
  if (Math.abs(seconds) < 5) return 'now';
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

const moment = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const dayClock = new Intl.DateTimeFormat('en-GB', {
  weekday: 'short',
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23',
});
const date = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium' });
/** @param {string | number} at */
export const day = (at) => date.format(new Date(at));
/** @param {string | number | null} at */
export const when = (at) => (at === null ? '' : moment.format(new Date(at)));
/** @param {string | number} at @param {boolean} [withDay] */
export const hour = (at, withDay = false) => (withDay ? dayClock : clock).format(new Date(at));
