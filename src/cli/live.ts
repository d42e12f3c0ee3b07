import { stripVTControlCharacters } from 'node:util';
import { formatBytes, formatDuration } from '../floor/units.ts';
import type { Status } from './answers.ts';
import { clean, cut, number, overwrite, print, printError, progressBar, width } from './output.ts';

/** How often a line is printed if it cannot be overwritten. */
const printEveryMs = 5000;

/** One line that is overwritten when it changes. Outside a terminal: a new line at intervals. */
export function liveLine({ silent = false }: { silent?: boolean } = {}) {
  const { stdout } = process;
  let last = '';
  let printedAt = 0;
  const end = (): void => {
    if (stdout.isTTY && last !== '') overwrite(stdout);
    last = '';
  };
  return {
    show(text: string): void {
      if (silent || text === last) return;
      if (stdout.isTTY) {
        overwrite(stdout, fitted(text, (stdout.columns || 80) - 1));
      } else if (performance.now() - printedAt >= printEveryMs) {
        print(text);
        printedAt = performance.now();
      }
      last = text;
    },
    /** Prints lines that stay, above the live line. */
    print(text: string): void {
      end();
      print(text);
    },
    /** The same on standard error. */
    say(text: string): void {
      end();
      printError(text);
    },
    end,
  };
}

/** `████████░░░░░░░░  50%  20/40 assets    1.2 MiB/s  3.0 s left` */
export function transferLine(done: number, total: number, { rate, timeLeft, outstanding, bucket }: Status): string {
  return [
    progressBar(done, total),
    `${number(done).padStart(number(total).length)}/${number(total)} assets`,
    `${formatBytes(rate.bytesPerSecond)}/s`.padStart(11),
    ...(timeLeft ? [`${formatDuration(timeLeft * 1000)} left`] : []),
    ...(outstanding.later > 0 ? [`${number(outstanding.later)} waiting to retry`] : []),
    ...(bucket.ok ? [] : ['bucket unavailable']),
  ].join('  ');
}

/** A line that is too long loses its colours, too. */
const fitted = (line: string, columns: number) =>
  width(line) <= columns ? line : cut(stripVTControlCharacters(line), columns);

/** A screen that is overwritten without flicker, cut to the size of the terminal. */
export function liveScreen() {
  const { stdout } = process;
  stdout.write('\u001b[2J');
  return {
    show(text: string): void {
      const [rows, columns] = [stdout.rows || 24, stdout.columns || 80];
      const lines = text.split('\n');
      const shown =
        lines.length < rows ? lines : [...lines.slice(0, rows - 2), `… and ${lines.length - rows + 2} more lines`];
      const fitting = shown.map((line) => `${clean(fitted(line, columns))}\u001b[K\n`);
      stdout.write(`\u001b[H${fitting.join('')}\u001b[J`);
    },
  };
}
