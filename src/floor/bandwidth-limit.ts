import { parseRate } from './units.ts';

/**
 * A bandwidth limit: bytes per second, `unlimited`, or a timetable such as
 * `Mon-Fri 08:00-18:00 10MiB/s, else unlimited Europe/Berlin`. The first window that contains the time counts.
 */
export type Bandwidth = number | string;

interface Window {
  /** 0 is Sunday. */
  days: number[];
  /** Minutes of the day. If `to` is not later than `from`, it is on the next day. */
  from: number;
  to: number;
  rate: number | null;
}

interface Timetable {
  clock: Intl.DateTimeFormat;
  windows: Window[];
  otherwise: number | null;
}

const anyForm =
  'a rate such as 20MiB/s, or unlimited, or a timetable such as "Mon-Fri 08:00-18:00 10MiB/s, else unlimited Europe/Berlin"';

/** The limit that a text means; or what is expected instead, which names the wrong part. */
export function parseBandwidth(given: string): { limit: Bandwidth } | { expected: string } {
  const text = given.trim().replaceAll('–', '-').replaceAll(/\s+/g, ' ');
  const rate = parseRate(text);
  if (rate !== undefined) return { limit: rate };
  if (isUnlimited(text)) return { limit: 'unlimited' };
  try {
    readTimetable(text);
    return { limit: text };
  } catch (error) {
    if (error instanceof WrongPart) return { expected: error.message };
    throw error;
  }
}

/** A limit as it is stored; null: none. */
export const bandwidthIn = (value: unknown): Bandwidth | null =>
  typeof value === 'number' || typeof value === 'string' ? value : null;

/** The text of a timetable; null: the limit is always the same. */
export const timetableOf = (limit: Bandwidth | null): string | null =>
  typeof limit === 'string' && !isUnlimited(limit) ? limit : null;

/** Bytes per second at a time in epoch milliseconds; null: unlimited. */
export function bandwidthAt(limit: Bandwidth | null | undefined, at = Date.now()): number | null {
  if (typeof limit !== 'string') return limit ?? null;
  const timetable = isUnlimited(limit) ? undefined : known(limit);
  if (!timetable) return null;
  const { clock, windows, otherwise } = timetable;
  const parts = Object.fromEntries(clock.formatToParts(at).map(({ type, value }) => [type, value]));
  const day = dayNames.indexOf(parts.weekday!.toLowerCase());
  const minute = Number(parts.hour) * 60 + Number(parts.minute);
  const found = windows.find(({ days, from, to }) => {
    const begun = days.includes(day) && minute >= from;
    if (from < to) return begun && minute < to;
    return begun || (days.includes((day + 6) % 7) && minute < to);
  });
  return found ? found.rate : otherwise;
}

/**
 * A stored timetable. Undefined, so unlimited, if this process does not know its time zone.
 */
function known(text: string): Timetable | undefined {
  try {
    return readTimetable(text);
  } catch {
    return undefined;
  }
}

class WrongPart extends Error {}

/** Ends with an error that says what is expected in place of a part. */
function wrong(expected: string, part: string): never {
  throw new WrongPart(`${expected} in place of "${part}"`);
}

const dayNames = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'];
// Not `MiB/s`.
const zoneName = String.raw`UTC|[A-Za-z]+(?:/[A-Z][\w+-]*)+`;
const zones = new RegExp(`^(?:(${zoneName})[:,]? )?(.*?)(?:,? (${zoneName}))?$`);

function readTimetable(text: string): Timetable {
  const [, first, body = '', last] = zones.exec(text) ?? [];
  if (first && last) wrong('one time zone', `${first} … ${last}`);
  const clock = clockOf(first ?? last ?? 'UTC');
  const parts = body.split(/ ?, ?/);
  const [, otherwise] = /^else (.+)$/i.exec(parts.at(-1)!) ?? [];
  const windows = (otherwise === undefined ? parts : parts.slice(0, -1)).map((part) => readWindow(part, parts.length));
  return { clock, windows, otherwise: otherwise === undefined ? null : readRate(otherwise) };
}

const clocks = new Map<string, Intl.DateTimeFormat>();

function clockOf(timeZone: string): Intl.DateTimeFormat {
  try {
    const options = { weekday: 'short', hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
    const clock = clocks.get(timeZone) ?? new Intl.DateTimeFormat('en', { timeZone, ...options });
    clocks.set(timeZone, clock);
    return clock;
  } catch {
    return wrong('a time zone such as Europe/Berlin', timeZone);
  }
}

function readWindow(part: string, parts: number): Window {
  const [, days, times, rate] = /^(?:([a-z]+(?:-[a-z]+)?) )?(?:([\d:]+-[\d:]+) )?(.*)$/i.exec(part) ?? [];
  if (days === undefined && times === undefined) {
    if (parts === 1) throw new WrongPart(anyForm);
    wrong('days or times and a rate, such as Mon-Fri 08:00-18:00 10MiB/s,', part);
  }
  return { days: readDays(days ?? 'Mon-Sun'), ...readTimes(times ?? '00:00-24:00'), rate: readRate(rate!) };
}

function readDays(text: string): number[] {
  const [from = -1, to = from] = text.split('-').map((day) => dayNames.indexOf(day.toLowerCase()));
  if (from < 0 || to < 0) wrong('a day or days such as Sat or Mon-Fri', text);
  return Array.from({ length: ((to - from + 7) % 7) + 1 }, (_, index) => (from + index) % 7);
}

function readTimes(text: string): { from: number; to: number } {
  const [from = -1, to = -1] = text.split('-').map((time) => {
    const [, hour, minute] = /^(\d\d?):(\d\d)$/.exec(time) ?? [];
    const at = Number(hour) * 60 + Number(minute);
    return Number(minute) < 60 && at <= 24 * 60 ? at : -1;
  });
  if (from < 0 || to < 0 || from === to || from === 24 * 60) wrong('two times such as 08:00-18:00', text);
  return { from, to };
}

function readRate(text: string): number | null {
  if (isUnlimited(text)) return null;
  return parseRate(text) ?? wrong('a rate such as 10MiB/s, or unlimited,', text);
}

const isUnlimited = (text: string) => /^(unlimited|off)$/i.test(text);
