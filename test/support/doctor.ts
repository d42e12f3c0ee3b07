import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig } from '../../src/config/config.ts';
import { examine } from '../../src/doctor.ts';
import type { Finding } from '../../src/floor/finding.ts';
import { spawned } from './spawned.ts';

/** `doctor` in this process. */
export async function findings(environment: Record<string, string>, signal = new AbortController().signal) {
  return Array.fromAsync(examine(readConfig(environment), signal));
}

/** The verb as a process. */
export async function run(environment: Record<string, string>, ...args: string[]) {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-doctor-'));
  const main = join(import.meta.dirname, '../../src/main.ts');
  return new Promise<{ code: number; out: string; err: string }>((resolve) => {
    const env = { ...spawned, ...environment };
    const child = execFile(process.execPath, [main, 'doctor', ...args], { env, cwd: directory }, (_, out, err) => {
      rm(directory, { recursive: true, force: true }).then(() => resolve({ code: child.exitCode ?? -1, out, err }));
    });
  });
}

/** The finding about this. */
export const of = (all: Finding[], what: string) => all.find((finding) => finding.what === what);

/** What is wrong. */
export const wrong = (all: Finding[]) =>
  all.filter(({ level }) => level === 'wrong').map(({ area, what }) => `${area}: ${what}`);
