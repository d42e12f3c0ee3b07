import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { availableParallelism, loadavg } from 'node:os';
import { delimiter, join } from 'node:path';

interface Benchmark {
  what: string;
  /** Its arguments with their defaults; all are numbers unless stated otherwise. */
  takes: string;
  words?: true;
  /** About how long it runs. */
  minutes: number;
  /** Programs that it needs. */
  needs?: string[];
  /** The arguments when all benchmarks run, if the defaults take too long. */
  ofAll?: string[];
}

/**
 * `npm run bench` runs all benchmarks in turn, `npm run bench -- NAME [ARGUMENTS]` one of them. Each writes a page with a table
 * and a chart into bench/results, or RESULTS, and ends by itself: sizes are arguments, which follow the name.
 */
const benchmarks: Record<string, Benchmark> = {
  'one-large-file': {
    what: 'one large file from HTTP to S3, compared with rclone and curl',
    takes: '[GIB=2] [ROUNDS=3]',
    minutes: 10,
    needs: ['redis-server', 'versitygw', 'curl'],
  },
  'small-files': {
    what: 'many small files, compared with rclone',
    takes: '[FILES=3000] [BYTES=100000] [ROUNDS=3]',
    minutes: 3,
    needs: ['redis-server', 'versitygw'],
  },
  'nothing-new': {
    what: 'a sync that finds nothing new, for libraries of different sizes',
    takes: '[SECONDS=20] [SIZE=1000 100000 1000000]',
    minutes: 11,
    needs: ['redis-server'],
  },
  'many-connections': {
    what: 'whether the syncs of many connections begin on time',
    takes: '[SECONDS=100] [CONNECTIONS=100 1000 10000 100000]',
    minutes: 15,
    needs: ['redis-server'],
    ofAll: ['45', '100', '1000', '10000'],
  },
  processes: {
    what: 'small files by 1 to 8 workers, with simple servers',
    takes: '[FILES=4000] [BYTES=10000] [WORKERS=1 2 4 8]',
    minutes: 6,
    needs: ['redis-server'],
  },
  freshness: {
    what: 'from an upload until it is in the bucket, under load',
    takes: '[SECONDS=45] [BACKLOG=30000]',
    minutes: 3,
    needs: ['redis-server', 'versitygw'],
  },
  'narrow-links': {
    what: 'a first sync behind slow networks, from a library that limits requests',
    takes: '[SECONDS=20] [LATENCY=20 100 300]',
    minutes: 15,
    needs: ['redis-server', 'versitygw', 'curl'],
    ofAll: ['10', '100'],
  },
  'first-sync': {
    what: 'the first sync of a large library',
    takes: '[ASSETS=1000000]',
    minutes: 11,
    needs: ['redis-server'],
    ofAll: ['100000'],
  },
  'large-library': {
    what: 'all that reads a whole library: sync, verification, inventory, rebuild, API',
    takes: '[ASSETS=10000000]',
    minutes: 75,
    needs: ['redis-server'],
    ofAll: ['100000'],
  },
  'large-files': {
    what: 'several large files at once, and a SIGKILL during one',
    takes: '[FILES=8] [GIB=2]',
    minutes: 3,
  },
  'operator-api': {
    what: 'how long the operator API takes with many records',
    takes: '[CONNECTIONS=10000] [ASSETS=1000000]',
    minutes: 4,
  },
  start: {
    what: 'the time until the mirror is ready, and its memory when idle',
    takes: '[PROGRAM=src/main.ts dist/main.js]',
    words: true,
    minutes: 4,
    needs: ['redis-server'],
  },
  library: { what: 'pages, details and media of the bundled library', takes: '[SECONDS=5]', words: true, minutes: 2 },
};

const installed = (program: string) =>
  (process.env.PATH ?? '').split(delimiter).some((directory) => existsSync(join(directory, program)));

const [name, ...args] = process.argv.slice(2);
const chosen = name === undefined ? Object.keys(benchmarks) : [name];
const list = Object.entries(benchmarks).flatMap(([each, { what, takes, minutes, needs = [] }]) => [
  `  ${each.padEnd(18)} ${what} (about ${minutes} min)`,
  `  ${''.padEnd(18)} ${takes}${needs.length > 0 ? `; needs ${needs.join(', ')}` : ''}`,
]);
const usage = `npm run bench [-- NAME [ARGUMENTS]]; without a name, all of them (with smaller sizes, about an hour)

${list.join('\n')}

Each writes a page and charts into bench/results, or into the directory RESULTS, and replaces those of the run
before. Objects and records are in TMPDIR. Comparisons use the rclone in PATH, and the one in RCLONE.`;

function refuse(words: string): never {
  console.error(words);
  process.exit(2);
}

const helps = ['--help', '-h', 'help'];
if (helps.includes(name ?? '')) {
  console.log(usage);
  process.exit(0);
}
if (chosen.some((each) => !Object.hasOwn(benchmarks, each))) refuse(`There is no benchmark ${name}\n\n${usage}`);
if (name !== undefined) {
  const { what, takes, words, minutes } = benchmarks[name]!;
  const help = `npm run bench -- ${name} ${takes}\n${what} (about ${minutes} min)`;
  if (args.some((each) => helps.includes(each))) {
    console.log(help);
    process.exit(0);
  }
  const wrong = args.find((each) => !words && !(/^\d+(\.\d+)?$/.test(each) && Number(each) > 0));
  if (wrong !== undefined) refuse(`${wrong} is not a number above 0\n\n${help}`);
}
const missing = new Set(chosen.flatMap((each) => benchmarks[each]!.needs ?? []).filter((each) => !installed(each)));
if (missing.size > 0) refuse(`not installed here: ${[...missing].join(', ')}; see CONTRIBUTING.md, Tests`);
if (loadavg()[0]! > availableParallelism() / 2) {
  console.log(`The machine is busy (load ${loadavg()[0]!.toFixed(1)}), so the figures are less reliable.`);
}

const failed: string[] = [];
for (const each of chosen) {
  const { what, minutes, ofAll = [] } = benchmarks[each]!;
  console.log(`\n== ${each}: ${what} (about ${minutes} min)`);
  const began = performance.now();
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, `${each}.ts`), ...(name === undefined ? ofAll : args)],
    { stdio: 'inherit' },
  );
  const [code] = await once(child, 'exit');
  if (code !== 0) failed.push(each);
  console.log(
    `== ${each} ${code === 0 ? 'done' : `failed (${code})`} in ${((performance.now() - began) / 1000).toFixed(0)} s`,
  );
}
if (failed.length > 0) console.log(`\nfailed: ${failed.join(', ')}`);
process.exitCode = failed.length > 0 ? 1 : 0;
