import type { Finding } from '../../floor/finding.ts';
import { counted, harmless, paint, print, printJson } from '../output.ts';

const marks = { ok: ['green', '✓'], note: ['yellow', '!'], wrong: ['red', '✗'] } as const;

/** Prints each finding as it is found. Returns the number of errors. */
export async function doctor(findings: AsyncIterable<Finding>, options: { json?: boolean }): Promise<number> {
  const all: Finding[] = [];
  for await (const finding of findings) {
    if (!options.json) {
      if (finding.area !== all.at(-1)?.area) print(`${all.length > 0 ? '\n' : ''}${paint('bold', finding.area)}`);
      print(describe(finding));
    }
    all.push(finding);
  }
  const count = (level: Finding['level']) => all.filter((finding) => finding.level === level).length;
  const wrong = count('wrong');
  if (options.json) printJson({ ok: wrong === 0, findings: all });
  else {
    const [warnings, good] = [count('note'), count('ok')];
    const parts = [
      wrong > 0 ? paint('red', counted(wrong, 'error')) : paint('green', 'No errors'),
      ...(warnings > 0 ? [paint('yellow', counted(warnings, 'warning'))] : []),
      `${good} ok`,
    ];
    print(`\n${parts.join(', ')}.`);
  }
  return wrong;
}

const columns = 80;
const indent = 19;

/** `  ✓ checksums      CRC-32, MD5 as ETag, so crc32`, and below it the remedy. */
function describe(finding: Finding): string {
  const { what, found, chosen, remedy, level } = finding;
  const [colour, mark] = marks[level];
  // A longer name gets its own line.
  const name = what.length > 14 ? `${what}\n${' '.repeat(indent)}` : what.padEnd(15);
  const text = wrapped(harmless(chosen ? `${found}, so ${chosen}` : found));
  const help = remedy
    ? wrapped(harmless(remedy), 2).map((line, at) => paint('dim', `${at === 0 ? '→' : ' '} ${line}`))
    : [];
  const lines = [...text, ...help].join(`\n${' '.repeat(indent)}`);
  return `  ${paint(colour, mark)} ${name}${lines}`;
}

/** Wraps into the rest of 80 columns; never breaks a word. */
function wrapped(text: string, more = 0): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns - indent - more)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}
