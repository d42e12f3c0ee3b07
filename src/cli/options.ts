import { InvalidArgumentError } from 'commander';

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

/** Below the help of a verb. */
export const examples = (...lines: string[]) => `\nExamples:\n${lines.map((line) => `  ${line}`).join('\n')}`;
