import { opendirSync } from 'node:fs';
import { resolve } from 'node:path';
import { InvalidArgumentError } from 'commander';
import { parseStorageUrl, type StorageTarget } from '../config/parsers.ts';
import { parseTag, type Tags, tagForm } from '../floor/tags.ts';
import { parseSize } from '../floor/units.ts';

/** The maximum rows of a page of the API. */
export const mostRows = 250;

/** How an operator can name a connection. */
export const connectionName = "the connection: its id or the beginning of it, or its user's e-mail or name";

/** An option that may be repeated. */
export const collect = (value: string, before: string[] = []) => [...before, value];

/** A tag, which may be repeated. */
export function collectTags(text: string, before: Tags = {}): Tags {
  const tag = parseTag(text);
  if (!tag) throw new InvalidArgumentError(`Expected ${tagForm}.`);
  return { ...before, [tag[0]]: tag[1] };
}

export function wholeNumber(least: number, most: number) {
  return (text: string): number => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most))
      throw new InvalidArgumentError(`Expected a whole number from ${least} to ${most}.`);
    return value;
  };
}

export function size(text: string): number {
  const value = parseSize(text);
  if (value) return value;
  throw new InvalidArgumentError('Expected a size, such as 10MiB.');
}

/** A time with its zone, or the end of a day in UTC. */
export const date = (text: string): Date => timeOf(text, 'T23:59:59.999Z');

/** A time with its zone, the start of a day in UTC, or epoch milliseconds. */
export const startDate = (text: string): Date =>
  /^\d{13}$/.test(text) ? new Date(Number(text)) : timeOf(text, 'T00:00:00Z');

function timeOf(text: string, ofDay: string): Date {
  const [, day, time] = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d(?:\.\d{1,3})?)?(?:Z|[+-]\d\d:\d\d))?$/.exec(text) ?? [];
  const at = new Date(time ? text : `${day}${ofDay}`);
  // JavaScript takes 31 February for 3 March.
  const isDay = !Number.isNaN(at.getTime()) && new Date(`${day}T00:00:00Z`).toISOString().startsWith(day!);
  if (isDay) return at;
  throw new InvalidArgumentError(
    'Expected a date, such as 2026-01-31, 2026-01-31T12:00:00Z or 2026-01-31T14:00:00+02:00.',
  );
}

/** A day, which stays a text. */
export function day(text: string): string {
  date(text);
  if (/^\d{4}-\d\d-\d\d$/.test(text)) return text;
  throw new InvalidArgumentError('Expected a day, such as 2026-01-31.');
}

const address = (expected: string, protocols: RegExp) => (text: string) => {
  if (protocols.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new InvalidArgumentError(`Expected ${expected}.`);
};
export const httpAddress = address('an address, such as https://library.example.com', /^https?:$/);
export const httpsAddress = address('an https address', /^https:$/);

export function nonEmptyText(text: string): string {
  if (text.trim() !== '') return text;
  throw new InvalidArgumentError('Expected a text that is not empty.');
}

/** Checks that a directory can be listed, before anything is started. */
export function directory(text: string): string {
  const path = resolve(text);
  try {
    opendirSync(path).closeSync();
    return text;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const why = { ENOENT: 'does not exist', ENOTDIR: 'is not a directory', EACCES: 'is not readable for this user' }[
      code
    ];
    throw new InvalidArgumentError(`${path} ${why ?? `cannot be read (${code})`}. Name a directory that you can read.`);
  }
}

/** A directory, or an address such as s3://bucket/prefix. Undefined for a wrong address. */
export const placeOf = (text: string): StorageTarget | undefined =>
  /^(s3|file):\/\//.test(text) ? parseStorageUrl(text) : { kind: 'directory', path: resolve(text) };
