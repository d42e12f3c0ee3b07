import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism, loadavg } from 'node:os';
import { join } from 'node:path';

/**
 * `npm run bench` runs all benchmarks in turn, `npm run bench -- NAME [ARGUMENTS]` one of them. Each writes a page with a table
 * and a chart into bench/results, or RESULTS, and ends by itself: sizes are arguments, and what follows the name is handed on.
 * `args`: the sizes when all are run, where those of a run by itself would take too long.
 */
const benchmarks: Record<string, { what: string; minutes: number; args?: string[] }> = {
  'one-large-file': { what: '[GIB] [ROUNDS]: one large file, HTTP to S3, beside rclone and curl', minutes: 3 },
  'small-files': { what: '[FILES] [BYTES]: many small ones, beside rclone', minutes: 1 },
  'nothing-new': { what: '[SECONDS] [SIZE…]: a sync without news, whatever the size of the library', minutes: 6 },
  'many-connections': {
    what: '[SECONDS] [CONNECTIONS…]: whether their syncs are on time',
    minutes: 4,
    args: ['45', '100', '1000', '10000'],
  },
  processes: { what: '[FILES] [BYTES] [WORKERS…]: small files with servers that do next to nothing', minutes: 2 },
  freshness: { what: '[SECONDS] [BACKLOG]: from an upload until it is in the bucket, under load', minutes: 3 },
  's3-put': { what: '[PUTS] [ROUNDS]: what a request to S3 costs, by the SDK and by the mirror', minutes: 1 },
  'first-sync': { what: '[ASSETS]: the first sync of a large library', minutes: 3, args: ['100000'] },
  'large-files': { what: '[FILES] [GIB]: several at once, and a SIGKILL in the middle of one', minutes: 3 },
  'operator-api': { what: '[CONNECTIONS] [ASSETS]: how long its answers take with many records', minutes: 4 },
  start: { what: '[PROGRAM…]: until it is ready, and what it has when it has nothing to do', minutes: 4 },
  library: { what: '[SECONDS]: pages, details and media of the library', minutes: 2 },
};

const [name, ...args] = process.argv.slice(2);
const chosen = name === undefined ? Object.keys(benchmarks) : [name];
const list = Object.entries(benchmarks).map(([each, { what }]) => `  ${each.padEnd(18)} ${what}`);
const usage = `npm run bench [-- NAME [ARGUMENTS]]; without a name, all of them\n\n${list.join('\n')}`;
const helps = ['--help', '-h', 'help'];
if (helps.includes(name ?? '')) {
  console.log(usage);
  process.exit(0);
}
if (chosen.some((each) => !Object.hasOwn(benchmarks, each))) {
  console.error(`there is no benchmark ${name}\n\n${usage}`);
  process.exit(2);
}
if (args.some((each) => helps.includes(each))) {
  console.log(`npm run bench -- ${name} ${benchmarks[name!]!.what}`);
  process.exit(0);
}
if (loadavg()[0]! > availableParallelism() / 2) {
  console.log(`The machine is busy (load ${loadavg()[0]!.toFixed(1)}): what follows tells less than it could.`);
}

const failed: string[] = [];
for (const each of chosen) {
  const { what, minutes, args: forAll = [] } = benchmarks[each]!;
  console.log(`\n== ${each}: ${what.replace(/^.*?: /, '')} (about ${minutes} min)`);
  const began = performance.now();
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, `${each}.ts`), ...(name === undefined ? forAll : args)],
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
