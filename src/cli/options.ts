import { opendirSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Command, InvalidArgumentError } from 'commander';

/** Rows of a page, at most: the service gives no more at a time. */
export const mostRows = 250;

/** An option that may be repeated. */
export const collect = (value: string, before: string[] = []) => [...before, value];

export function wholeNumber(least: number, most: number) {
  return (text: string): number => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most))
      throw new InvalidArgumentError(`Expected a whole number from ${least} to ${most}.`);
    return value;
  };
}

const address = (expected: string, protocols: RegExp) => (text: string) => {
  if (protocols.test(URL.parse(text)?.protocol ?? '')) return text;
  throw new InvalidArgumentError(`Expected ${expected}.`);
};
export const httpAddress = address('an address, such as https://library.example.com', /^https?:$/);
export const httpsAddress = address('an https address', /^https:$/);

export function words(text: string): string {
  if (text.trim() !== '') return text;
  throw new InvalidArgumentError('Expected some words.');
}

/** A directory that can be listed: said before anything is started that would find out. */
export function directory(text: string): string {
  const path = resolve(text);
  try {
    opendirSync(path).closeSync();
    return text;
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    const why = { ENOENT: 'is not there', ENOTDIR: 'is no directory', EACCES: 'may not be read by this user' }[code];
    throw new InvalidArgumentError(`${path} ${why ?? `cannot be read (${code})`}. Name a directory that can be read.`);
  }
}

/** Below the help of a verb. */
export const examples = (...lines: string[]) => `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`;

/** Another verb: its name, its words in the list of all, and what else its own help says. */
export type NewVerb = (name: string, text: string, more?: string) => Command;
