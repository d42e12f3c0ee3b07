import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { S3Server } from '../test/support/services.ts';
import type { BareClient } from './bare-client.ts';

const run = promisify(execFile);

/** The usage of a client: time, processor time (user and system), and maximum memory (MiB, of all its processes). */
export interface Cost {
  seconds: number;
  cpu: number;
  rss: number;
}

/** Every rclone there is: the one in PATH, and the one that RCLONE names; the older first. */
export async function rclones(): Promise<{ name: string; path: string }[]> {
  const found = await Promise.all(
    ['rclone', process.env.RCLONE ?? ''].filter(Boolean).map(async (path) => {
      const { stdout } = await run(path, ['version'], { env }).catch(() => ({ stdout: '' }));
      const version = /rclone v(\d+\.\d+\.\d+)/.exec(stdout)?.[1];
      return version ? [{ name: `rclone ${version}`, path }] : [];
    }),
  );
  const all = found.flat().filter(({ name }, i, list) => list.findIndex((other) => other.name === name) === i);
  if (all.length === 0) console.log('skipped: rclone is not installed');
  return all;
}

/** An environment without the settings of other programs, such as certificates for the SDK. */
const env = { PATH: process.env.PATH };

/**
 * The flags with which rclone speaks to an S3 server. Without the last one it waits up to a second before each part for
 * `100 Continue`, and against the Versity gateway it did: four times as long for a large file.
 */
export const s3Flags = ({ accessKey, secretKey, endpoint, region }: S3Server) =>
  [
    '--config /dev/null --s3-provider Other --s3-force-path-style',
    `--s3-endpoint ${endpoint} --s3-region ${region}`,
    `--s3-access-key-id ${accessKey} --s3-secret-access-key ${secretKey}`,
    '--expect-continue-timeout 0',
  ].join(' ');

/** The command line of a client that only sends the requests. `ca` is the file of the servers' certificate authority. */
export const bareClient = (order: BareClient, ca?: string) =>
  `${ca ? `NODE_EXTRA_CA_CERTS=${ca} ` : ''}${process.execPath} --disable-warning=ExperimentalWarning ${fileURLToPath(new URL('bare-client.ts', import.meta.url))} '${JSON.stringify(order)}'`;

/** Runs a command line to its end. @throws Error with its output */
export async function cost(command: string): Promise<Cost> {
  const child = spawn('bash', ['-c', `set -o pipefail; TIMEFORMAT='%3R %3U %3S'; time { ${command}; }`], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  const ended = once(child, 'close') as Promise<[number]>;
  let running = true;
  void ended.then(() => {
    running = false;
  });
  // The system keeps the maximum of each process, so reading it at intervals is enough.
  const marks = new Map<number, number>();
  while (running) {
    for (const pid of below(child.pid!)) marks.set(pid, Math.max(marks.get(pid) ?? 0, highest(pid)));
    await Promise.race([ended, sleep(200)]);
  }
  const [code] = await ended;
  const times = said.trim().split('\n').at(-1)!.split(' ').map(Number) as [number, number, number];
  if (code !== 0) throw new Error(`${command.split(' ').slice(0, 2).join(' ')} ended with ${code}: ${said}`);
  const [seconds, user, system] = times;
  return { seconds, cpu: user + system, rss: [...marks.values()].reduce((sum, mark) => sum + mark, 0) };
}

/** Processes below another one that do work: the shell itself is not one. */
function below(parent: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      parents.set(Number(name), Number(readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1]!.split(' ')[1]));
    } catch {}
  }
  const found: number[] = [];
  for (let level = [parent]; level.length > 0; ) {
    level = [...parents].filter(([, of]) => level.includes(of)).map(([pid]) => pid);
    found.push(...level);
  }
  return found;
}

function highest(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    if (/^Name:\s+bash$/m.test(status)) return 0;
    return Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
  } catch {
    return 0;
  }
}

export const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** The median of each figure, so that one disturbed run does not count. */
export const middle = (costs: Cost[]): Cost => ({
  seconds: median(costs.map(({ seconds }) => seconds)),
  cpu: median(costs.map(({ cpu }) => cpu)),
  rss: Math.max(...costs.map(({ rss }) => rss)),
});
