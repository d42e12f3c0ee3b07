import { stripVTControlCharacters, styleText } from 'node:util';
import { formatDuration } from '../floor/units.ts';

/**
 * All output of verbs goes through here: colours on a terminal only (see NO_COLOR and FORCE_COLOR), tables that fit, and no
 * control characters except our own.
 */

type Style = Parameters<typeof styleText>[0];

export function paint(style: Style, text: string): string {
  return styleText(style, text, { stream: process.stdout });
}

export function print(text = ''): void {
  process.stdout.write(`${clean(text)}\n`);
}

export function printError(text: string): void {
  process.stderr.write(`${clean(text)}\n`);
}

/** Replaces the line of the cursor. */
export function overwrite(stream: NodeJS.WriteStream, text = ''): void {
  stream.write(`\r\u001b[K${clean(text)}`);
}

export const printJson = (value: unknown) => print(jsonOf(value, 2));

export const printJsonLine = (value: unknown) => print(jsonOf(value));

const controls = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu;

/** JSON. It escapes C0 controls only; escaping the others, too, changes no value. */
export const jsonOf = (value: unknown, indent?: number) =>
  JSON.stringify(value, null, indent).replace(controls, (c) =>
    c === '\n' ? c : `\\u${c.codePointAt(0)!.toString(16).padStart(4, '0')}`,
  );

/** Text from outside, made safe: it can neither move the cursor nor add lines. */
export function harmless(text: string): string {
  return text.replace(controls, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}

/** The sequences that `paint` writes. */
const ownColours = /(\u001b\[(?:1|2|22|3[1236]|39)m)/;

/** Text without control characters, except for line ends and our colours. */
export function clean(text: string): string {
  return text
    .split(ownColours)
    .map((part, i) => (i % 2 === 1 ? part : part.split('\n').map(harmless).join('\n')))
    .join('');
}

const segmenter = new Intl.Segmenter();
const graphemes = (text: string) => [...segmenter.segment(text)].map(({ segment }) => segment);
// Two columns wide: emoji and East Asian scripts.
const wide =
  /\p{Emoji_Presentation}|[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6]/u;
const widthOf = (grapheme: string) => (wide.test(grapheme) ? 2 : 1);

/** The columns that a text takes in a terminal. Colours take none. */
export const width = (text: string): number =>
  graphemes(stripVTControlCharacters(text)).reduce((sum, grapheme) => sum + widthOf(grapheme), 0);

/** Shortens a text to `width` columns, with `…` at the end. */
export function cut(text: string, maxWidth: number): string {
  if (width(text) <= maxWidth) return text;
  let kept = '';
  let left = maxWidth - 1;
  for (const grapheme of graphemes(text)) {
    left -= widthOf(grapheme);
    if (left < 0) break;
    kept += grapheme;
  }
  return maxWidth < 1 ? '' : `${kept}…`;
}

export type Cell = string | { text: string; style: Style };

export interface Column {
  title: string;
  /** Aligned to the right, for numbers. */
  right?: boolean;
  /** The minimum width in a narrow terminal. Without it, the column is never cut. */
  least?: number;
  /** Columns with this are omitted if the table is still too wide; the highest first. */
  spare?: number;
}

/**
 * Columns as wide as their widest cell. In a narrow terminal columns with `least` are cut, the widest first; if that is not
 * enough, columns with `spare` are omitted.
 */
export function table(
  all: Column[],
  rows: Cell[][],
  maxWidth = process.stdout.columns || Number.POSITIVE_INFINITY,
): string {
  const textOf = (cell: Cell | undefined) => harmless(typeof cell === 'object' ? cell.text : (cell ?? ''));
  let columns = all.map((column, index) => ({
    ...column,
    index,
    width: Math.max(width(column.title), ...rows.map((row) => width(textOf(row[index])))),
  }));
  const over = (widths: number[]) => sum(widths) + 2 * (widths.length - 1) - maxWidth;
  const narrowest = ({ width, least = width }: { width: number; least?: number }) => Math.min(width, least);
  while (over(columns.map(narrowest)) > 0) {
    const spare = Math.max(...columns.map((column) => column.spare ?? 0));
    if (spare === 0) break;
    columns = columns.filter((column) => column.spare !== spare);
  }
  for (let left = over(columns.map((column) => column.width)); left > 0 && Number.isFinite(left); left--) {
    const [widest] = columns.filter((column) => column.width > narrowest(column)).sort((a, b) => b.width - a.width);
    if (!widest) break;
    widest.width--;
  }
  const line = (cells: Cell[]) =>
    columns
      .map(({ right, width: wide, index }) => {
        const cell = cells[index] ?? '';
        const text = cut(textOf(cell), wide);
        const pad = ' '.repeat(wide - width(text));
        const shown = typeof cell === 'object' ? paint(cell.style, text) : text;
        return right ? pad + shown : shown + pad;
      })
      .join('  ')
      .trimEnd();
  return [line(all.map(({ title }) => ({ text: title, style: 'bold' }))), ...rows.map(line)].join('\n');
}

const sum = (numbers: number[]) => numbers.reduce((total, n) => total + n, 0);

/** `████████░░░░` */
export function bar(done: number, total: number, columns = 20): string {
  const full = total > 0 ? Math.floor((columns * Math.min(done, total)) / total) : 0;
  return `${paint('cyan', '█'.repeat(full))}${paint('dim', '░'.repeat(columns - full))}`;
}

/** `████████░░░░  66%` */
export function progressBar(done: number, total: number, columns = 16): string {
  const percent = total > 0 ? Math.floor((100 * Math.min(done, total)) / total) : 0;
  return `${bar(done, total, columns)} ${`${percent}%`.padStart(4)}`;
}

/** Before this time has passed, a rate is not meaningful. */
const soonestMs = 2000;

/** `120/s, 4m 05s left`; empty while it is unknown. */
export function speed({ done, left, ms }: { done: number; left: number; ms: number }): string {
  if (ms < soonestMs || done <= 0) return '';
  const perSecond = (done * 1000) / ms;
  const rate = `${perSecond < 10 ? perSecond.toFixed(1) : number(Math.round(perSecond))}/s`;
  return left > 0 ? `${rate}, ${formatDuration((left / perSecond) * 1000)} left` : rate;
}

/** `1,234` */
export const number = (n: number): string => n.toLocaleString('en');

/** `1 asset`, `1,234 assets` */
export const counted = (n: number, word: string): string => `${number(n)} ${word}${n === 1 ? '' : 's'}`;

const spoken = new Intl.RelativeTimeFormat('en', { numeric: 'auto' });
const short = new Intl.RelativeTimeFormat('en', { style: 'narrow' });

/** `3 minutes ago`, `in 20 seconds`, `never`. */
export const ago = (time: string | null): string => (time === null ? 'never' : relative(time, spoken));

/** `3min ago`, `in 20s`, `–`: for tables. */
export const agoShort = (time: string | null): string => (time === null ? '–' : relative(time, short));

function relative(time: string, format: Intl.RelativeTimeFormat): string {
  const seconds = (Date.parse(time) - Date.now()) / 1000;
  const [unit, size] = (
    [
      ['day', 86400],
      ['hour', 3600],
      ['minute', 60],
    ] as const
  ).find(([, s]) => Math.abs(seconds) >= s) ?? ['second', 1];
  return format.format(Math.round(seconds / size), unit);
}
