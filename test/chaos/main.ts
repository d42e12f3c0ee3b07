import { spawnSync } from 'node:child_process';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { faultKinds } from './faults.ts';
import { makePlan, type Options } from './plan.ts';
import { lineOf, type Report, runPlan } from './run.ts';
import { openWorld } from './world.ts';

type Arguments = Options & { plan?: boolean; keep?: boolean; sabotage?: boolean };

const command = new Command('npm run chaos --')
  .description(
    `Run the mirror as real processes (web, two workers, PostgreSQL, Redis, a store, a library), inject one fault after the
other during uploads, then check that nothing is missing, wrong, or done twice without a cause.
test/chaos/README.md lists the faults.

Exit codes: 0 no problem found, 1 problems found, 2 wrong usage or a missing program.`,
  )
  .option('--seed <number>', 'seed of the plan: the same seed gives the same plan', whole(0), new Date().getUTCDate())
  .option('--assets <number>', 'number of assets to upload', whole(20), 500)
  .option('--faults <number>', 'number of faults to inject', whole(1), 40)
  .addOption(new Option('--store <kind>', 'store of the mirror').choices(['directory', 's3']).default('s3'))
  .option('--plan', 'print the plan and exit')
  .option('--sabotage', 'damage the copy before the check, which must then fail (directory only)')
  .option('--keep', 'keep logs and databases')
  .exitOverride();

const print = (text = '') => process.stdout.write(`${text}\n`);

// Do not wait for the open work of an interrupted run.
process.exit(await main());

async function main(): Promise<number> {
  let options: Arguments;
  try {
    options = command.parse().opts<Arguments>();
  } catch (error) {
    return error instanceof CommanderError && error.exitCode === 0 ? 0 : 2;
  }
  const { seed, assets, faults, store } = options;
  const plan = makePlan(options);
  if (options.plan) {
    print(`seed ${seed}: ${assets} assets, ${faults} of ${faultKinds.length} kinds of faults, store: ${store}\n`);
    for (const fault of plan.faults) print(lineOf(fault, fault.holds));
    return 0;
  }
  for (const program of ['redis-server', ...(store === 's3' ? ['versitygw'] : [])]) {
    if (spawnSync('which', [program]).status !== 0) {
      process.stderr.write(`${program} is not installed; see CONTRIBUTING.md\n`);
      return 2;
    }
  }
  // A separate disk that can be full, in a mount namespace, so that it disappears with this process. Needs root.
  const root = process.getuid?.() === 0;
  if (store === 'directory' && root && !process.env.CHAOS_NAMESPACE) {
    const again = ['-m', '--propagation', 'private', process.execPath, ...process.execArgv, ...process.argv.slice(1)];
    const { status } = spawnSync('unshare', again, { stdio: 'inherit', env: { ...process.env, CHAOS_NAMESPACE: '1' } });
    return status ?? 1;
  }
  if (store === 'directory' && !root) {
    plan.faults = plan.faults.filter(({ kind }) => kind.name !== 'disk-full');
    print('disk-full is skipped: it needs root.\n');
  }

  const directory = await mkdtemp(join(tmpdir(), `asset-mirror-chaos-${seed}-`));
  await chmod(directory, 0o755);
  const stopped = new Promise<never>((_, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.once(signal, () => reject(new Error(`stopped by ${signal}`)));
  });
  stopped.catch(() => {});
  print(`seed ${seed}: ${assets} assets, ${plan.faults.length} faults, store: ${store}\n`);
  let good = false;
  try {
    const started = Date.now();
    const world = await openWorld({ ...options, directory, hasDisk: store === 'directory' && root });
    try {
      const report = await Promise.race([runPlan(world, plan, print, options), stopped]);
      report.took.all = Date.now() - started;
      good = printReport(report);
    } finally {
      await world.close();
    }
  } catch (error) {
    print(`\n${error instanceof Error ? error.message : error}`);
    for (let cause = (error as Error).cause; cause; cause = (cause as Error).cause)
      print(`  because: ${(cause as Error).message}`);
  }
  const kept = options.keep || !(good || options.sabotage);
  if (!kept) await rm(directory, { recursive: true, force: true });
  else print(`\nLogs and databases: ${directory}`);
  if (!good) print(`Rerun: npm run chaos -- --seed ${seed} --assets ${assets} --faults ${faults} --store ${store}`);
  return good ? 0 : 1;
}

/** Prints the findings. True: there are none. */
function printReport({ findings, took }: Report): boolean {
  print();
  for (const { what, seen, problems } of findings) {
    print(`${problems.length === 0 ? 'ok' : 'NO'}  ${what}\n      ${seen}`);
    for (const problem of problems.slice(0, 10)) print(`      - ${problem}`);
    if (problems.length > 10) print(`      and ${problems.length - 10} more`);
  }
  const times = Object.entries(took).map(([name, ms]) => `${name} ${Math.round(ms / 1000)} s`);
  print(`\n${times.join(', ')}`);
  return findings.every(({ problems }) => problems.length === 0);
}

function whole(least: number) {
  return (text: string): number => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least)) throw new InvalidArgumentError(`Expected a whole number of at least ${least}.`);
    return value;
  };
}
