import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, statSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { spawned } from '../support/spawned.ts';

/** How long a program may take until it is ready, with all its attempts. */
const patience = 120_000;

/** A program of the world: started, killed and started again. It writes to one file for as long as the world lasts. */
export class Program {
  readonly name: string;
  readonly log: string;
  readonly #command: string[];
  readonly #env: Record<string, string>;
  readonly #isReady: (output: string) => boolean | Promise<boolean>;
  #child: ChildProcess | undefined;
  #wanted = false;
  /** Unexpected exits. */
  readonly surprises: string[] = [];

  constructor(options: {
    name: string;
    log: string;
    command: string[];
    env?: Record<string, string>;
    isReady: (output: string) => boolean | Promise<boolean>;
  }) {
    this.name = options.name;
    this.log = options.log;
    this.#command = options.command;
    this.#env = options.env ?? {};
    this.#isReady = options.isReady;
  }

  /** If it ends before it is ready, because a dependency is missing, it is restarted as by a supervisor. */
  async start(): Promise<string> {
    const until = Date.now() + patience;
    this.#wanted = true;
    for (;;) {
      const { child, output } = this.#spawn();
      while (child.exitCode === null && child.signalCode === null) {
        if (await this.#isReady(output())) return output();
        if (Date.now() > until)
          throw new Error(`${this.name} is not ready after ${patience / 1000} s; see ${this.log}`);
        await sleep(25);
      }
      if (!this.#wanted) return output();
      if (Date.now() > until) throw new Error(`${this.name} does not start; see ${this.log}`);
      await sleep(500);
    }
  }

  #spawn() {
    const file = openSync(this.log, 'a');
    const from = statSync(this.log).size;
    const [command, ...args] = this.#command as [string, ...string[]];
    const child = spawn(command, args, {
      stdio: ['ignore', file, file],
      env: { ...spawned, ...this.#env },
    });
    closeSync(file);
    this.#child = child;
    const output = () => readFileSync(this.log).subarray(from).toString();
    child.once('error', (error) => this.surprises.push(`${this.name}: ${error.message}`));
    child.once('exit', (code, signal) => {
      if (this.#child === child && this.#wanted && /"started"/.test(output())) {
        this.surprises.push(`${this.name} ended by itself (${signal ?? code}); see ${this.log}`);
      }
    });
    return { child, output };
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal);
  }

  /** SIGTERM is given ten seconds. */
  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.#wanted = false;
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill(signal);
    if (signal === 'SIGTERM') {
      const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
      await exit;
      clearTimeout(timer);
    } else {
      // A frozen process is killed, too.
      await exit;
    }
  }
}
