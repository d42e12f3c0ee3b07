import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** The fields of /proc/PID/stat (proc_pid_stat(5)) after the name, which may contain spaces. */
const statOf = (task: number | string) => readFileSync(`/proc/${task}/stat`, 'utf8').split(') ')[1]!.split(' ');

/** Processor time of a process so far, user and system, in seconds. */
export function cpuSeconds(task: number | string): number {
  const fields = statOf(task);
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Processor time of the main thread of a process, in seconds. */
export const mainThreadSeconds = (pid: number) => cpuSeconds(`${pid}/task/${pid}`);

export const parentOf = (pid: number) => Number(statOf(pid)[1]);

/** The children of a process. */
function childrenOf(parent: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return parentOf(pid) === parent;
    } catch {
      return false;
    }
  });
}

/** The processor time of a process with all its children, those that have ended included. */
export function cpuOfAll(parent: number): number {
  const own = statOf(parent);
  const ended = (Number(own[13]) + Number(own[14])) / 100;
  const running = childrenOf(parent).map((pid) => {
    try {
      return cpuSeconds(pid);
    } catch {
      return 0;
    }
  });
  return running.reduce((sum, seconds) => sum + seconds, cpuSeconds(parent) + ended);
}

/** A figure of /proc/PID/status, `VmRSS` or `VmHWM`, in MiB. */
export const mebibytes = (pid: number, field: 'VmRSS' | 'VmHWM') =>
  Number(new RegExp(`${field}:\\s+(\\d+)`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;

/** The memory of a process with all its children in MiB; shared memory counts once. */
export function memoryOfAll(parent: number): number {
  const all = [parent, ...childrenOf(parent)].map((pid) => {
    try {
      return Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))![1]);
    } catch {
      return 0;
    }
  });
  return all.reduce((sum, pss) => sum + pss, 0) / 1024;
}

/** A child of this process by its name. */
export function childNamed(name: string): number {
  const found = readdirSync('/proc').filter((pid) => {
    try {
      const [, comm, parent] = /\((.*)\) \S (\d+)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8'))!;
      return comm === name && Number(parent) === process.pid;
    } catch {
      return false;
    }
  });
  return Number(found[0]);
}

export async function ended(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await once(child, 'exit');
}

/** A program of this directory in its own process, and its first output. */
export async function startProgram<T>(file: string, args: string[]): Promise<{ child: ChildProcess; said: T }> {
  const child = fork(join(import.meta.dirname, file), args);
  const [said] = (await once(child, 'message')) as [T];
  return { child, said };
}
