import { styleText } from 'node:util';

/** How things are printed: colours on a terminal only, tables that fit. */

type Style = Parameters<typeof styleText>[0];

export function paint(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

export function print(text = ''): void {
  process.stdout.write(`${text}\n`);
}

export function printJson(value: unknown): void {
  print(JSON.stringify(value, null, 2));
}

// Sequences that move no cursor take no room.
const width = (text: string) => [...new Intl.Segmenter().segment(text.replace(/\u001b\[[\d;]*m/g, ''))].length;

/** Whether the terminal shows each line of it in one line; what is no terminal takes everything. */
export function fits(text: string): boolean {
  const { columns = Number.POSITIVE_INFINITY } = process.stdout;
  return text.split('\n').every((line) => width(line) <= columns);
}

/** Columns as wide as their widest cell; numbers to the right. */
export function table(header: string[], rows: string[][]): string {
  const all = [header.map((cell) => paint('bold', cell)), ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => width(row[column] ?? ''))));
  const right = header.map(
    (_, column) => rows.length > 0 && rows.every((row) => /^[\d.,–-]+( [KMGT]?i?B)?$/.test(row[column] ?? '')),
  );
  return all
    .map((row) =>
      row
        .map((cell, column) => {
          const pad = ' '.repeat(widths[column]! - width(cell));
          return right[column] ? pad + cell : cell + pad;
        })
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** `3 minutes ago`, `in 20 seconds`, `never`. */
export function ago(time: string | null): string {
  if (time === null) return 'never';
  const seconds = (Date.parse(time) - Date.now()) / 1000;
  const format = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
  const [unit, size] = (
    [
      ['day', 86400],
      ['hour', 3600],
      ['minute', 60],
    ] as const
  ).find(([, s]) => Math.abs(seconds) >= s) ?? ['second', 1];
  return format.format(Math.round(seconds / size), unit);
}
