import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Chart, svgOf } from './chart.ts';

const run = promisify(execFile);
const loadBefore = loadavg()[0]!;

/** The repository's results, or RESULTS: each benchmark writes its page and its charts there. */
const results = process.env.RESULTS ?? join(import.meta.dirname, 'results');

export const number = (value: number, digits = 0) =>
  value.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** `1 file`, `2 files` */
export const counted = (n: number, what: string) => `${number(n)} ${what}${n === 1 ? '' : 's'}`;

/** A table in Markdown. */
export const table = (head: string[], rows: string[][]) =>
  [head, head.map(() => '---'), ...rows]
    .map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)
    .join('\n');

/** Programs whose version a page shows, and the flags that print it. */
const asked = {
  curl: ['curl', '--version'],
  redis: ['redis-server', '--version'],
  versitygw: ['versitygw', '--version'],
} as const;

/** The output of a command, trimmed; empty if it cannot run. */
const outputOf = (program: string, ...args: string[]) =>
  run(program, args, { cwd: import.meta.dirname }).then(
    ({ stdout }) => stdout.trim(),
    () => '',
  );

/** The version of the sources, and whether the working tree differs from it. */
async function revision(): Promise<string> {
  const commit = await outputOf('git', 'rev-parse', '--short', 'HEAD');
  const changed = await outputOf('git', 'status', '--porcelain', '--', '../src', '../package.json');
  return commit && ` (${commit}${changed && ', changed'})`;
}

/** The version that a program prints or, if it was built from source, that Go has for it. */
async function versionOf(part: keyof typeof asked): Promise<string | undefined> {
  const [program, flag] = asked[part];
  const version = /\d+\.\d+(\.\d+)?/.exec(await outputOf(program, flag))?.[0];
  if (version) return version;
  return /^\s*mod\s+\S+\s+v(\S+)/m.exec(await outputOf('go', 'version', '-m', await outputOf('which', program)))?.[1];
}

/**
 * The conditions of a measurement: the machine, the versions of the programs, the file system that the servers write to (TMPDIR),
 * the day, and the other load of the machine.
 */
export async function ground(parts: (keyof typeof asked)[] = [], more: string[] = []): Promise<string> {
  const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../package.json'), 'utf8'));
  const versions = await Promise.all(
    parts.map(async (part) => [part === 'redis' ? 'Redis' : part, await versionOf(part)].filter(Boolean).join(' ')),
  );
  const machine = `${cpus().length} × ${cpus()[0]!.model.trim()}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB`;
  const disk = await outputOf('stat', '--file-system', '--format', '%T', tmpdir());
  const ours = `asset-mirror ${version}${await revision()}`;
  const all = [machine, ours, `Node ${process.version}`, ...versions, ...more, ...(disk ? [`files on ${disk}`] : [])];
  return `${new Date().toISOString().slice(0, 10)}; ${all.join(', ')}; load ${loadBefore.toFixed(1)} before, ${loadavg()[0]!.toFixed(1)} at the end.`;
}

/** Writes `bench/results/NAME.md` with its charts (`NAME.svg`, `NAME-2.svg`, …) behind the heading, and prints it. */
export function write(name: string, page: { title: string; charts?: Chart[]; text: string; ground: string }): void {
  mkdirSync(results, { recursive: true });
  const pictures = (page.charts ?? []).map((chart, i) => {
    const file = `${name}${i === 0 ? '' : `-${i + 1}`}.svg`;
    writeFileSync(join(results, file), svgOf(chart));
    return `![${chart.title}](${file})\n\n`;
  });
  const inMemory = tmpdir() === '/dev/shm' ? 'TMPDIR=/dev/shm ' : '';
  const end = `${page.ground} Made by \`${inMemory}npm run bench -- ${[name, ...process.argv.slice(2)].join(' ')}\`.`;
  const text = `# ${page.title}\n\n${pictures.join('')}${page.text.trim()}\n\n${end}\n`;
  writeFileSync(join(results, `${name}.md`), text);
  console.log(`\n${text}`);
}
