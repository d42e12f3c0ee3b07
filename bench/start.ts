import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { cpus, loadavg, tmpdir, totalmem } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createLog } from '../src/log.ts';
import { startEmbeddedPostgres } from '../src/store/embedded.ts';
import { freePort } from '../test/support/ports.ts';

/**
 * How long a process takes until it is ready, and what memory it has when it has nothing to do: each role, on PostgreSQL and
 * Redis, of each of the programs that are named (`src/main.ts dist/main.js`); they take turns, so that what else the machine
 * does befalls all of them. `node bench/start.ts [PROGRAM…]` writes bench/results/start.md. ROUNDS is how many turns (5);
 * COLD=1 has none of them keep compiled code, as in the image, and only prints.
 */
const programs = process.argv.length > 2 ? process.argv.slice(2) : ['src/main.ts', 'dist/main.js'];
const rounds = Number(process.env.ROUNDS ?? 5);
const idleMs = 3000;

const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-bench-'));
await using stack = new AsyncDisposableStack();
stack.defer(() => rm(directory, { recursive: true, force: true }));
const postgres = await startEmbeddedPostgres({ directory, log: createLog({ level: 'silent', pretty: false }) });
stack.defer(() => postgres.stop());
const redisPort = await freePort();
const redis = spawn('redis-server', ['--port', `${redisPort}`, '--save', '', '--maxmemory-policy', 'noeviction'], {
  stdio: 'ignore',
});
stack.defer(async () => {
  redis.kill();
  await once(redis, 'exit');
});

interface Figures {
  /** Until /readyz answers 200: on the clock, and of the processor. */
  ms: number;
  cpu: number;
  /** VmRSS and VmHWM, MiB. */
  idle: number;
  peak: number;
}

async function measure(program: string, role: string): Promise<Figures> {
  const port = await freePort();
  const started = performance.now();
  const child = spawn(process.execPath, [resolve(program), 'start', '--role', role], {
    env: {
      PATH: process.env.PATH,
      ...(process.env.COLD && { NODE_DISABLE_COMPILE_CACHE: '1' }),
      DATABASE_URL: postgres.url,
      REDIS_URL: `redis://127.0.0.1:${redisPort}`,
      DATA_DIR: directory,
      STORAGE_URL: `file://${directory}/mirror`,
      PORT: String(await freePort()),
      METRICS_PORT: String(port),
      ADMIN_TOKEN: 'the-operators-token',
      ENCRYPTION_KEYS: Buffer.alloc(32, 1).toString('base64'),
      LIBRARY_API_URL: 'http://127.0.0.1:9',
      LIBRARY_APP_URL: 'http://127.0.0.1:9',
      LIBRARY_CLIENT_ID: 'bench',
      LIBRARY_CLIENT_SECRET: 'bench',
      LOG_PRETTY: 'false',
    },
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
  // utime and stime, in ticks of 10 ms (proc_pid_stat(5)); the name before them may hold spaces.
  const [utime, stime] = readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1]!.split(' ').slice(11, 13);
  const cpu = (Number(utime) + Number(stime)) * 10;
  await sleep(idleMs);
  const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
  const kib = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)![1]);
  child.kill('SIGTERM');
  await ended;
  return { ms, cpu, idle: kib('VmRSS') / 1024, peak: kib('VmHWM') / 1024 };
}

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
const roles = ['all', 'web', 'worker'];
const found = new Map<string, Figures[]>();
// The first of each makes the tables and compiles; it does not count.
for (let round = 0; round <= rounds; round++) {
  for (const role of roles) {
    for (const program of programs) {
      const figures = await measure(program, role);
      if (round > 0) found.set(`${program} ${role}`, [...(found.get(`${program} ${role}`) ?? []), figures]);
    }
  }
}

const lines = programs.flatMap((program) =>
  roles.map((role) => {
    const all = found.get(`${program} ${role}`)!;
    const of = (key: keyof Figures) => median(all.map((figures) => figures[key])).toFixed(0);
    return `| ${program} | ${role} | ${of('ms')} | ${of('cpu')} | ${of('idle')} | ${of('peak')} |`;
  }),
);
const text = `# Starting, and having nothing to do

Until /readyz answers, on the clock and of the processor; then VmRSS after ${idleMs / 1000} seconds without work, and VmHWM. No
connections, PostgreSQL and Redis beside it, medians of ${rounds} starts in turns, ${process.env.COLD ? 'each without' : 'each with'} compiled code of an earlier start.

${new Date().toISOString().slice(0, 10)}, Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model.trim()}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, load ${loadavg()[0]!.toFixed(1)} at the end (the machine was shared).

| program | role | ready ms | processor ms | idle MiB | peak MiB |
| --- | --- | --- | --- | --- | --- |
${lines.join('\n')}
`;
process.stdout.write(text);
if (!process.env.COLD) writeFileSync(join(import.meta.dirname, 'results/start.md'), text);
