import { type ChildProcess, spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, minimalEnvironment } from './cluster.ts';

/** How long to wait for a fast shutdown. */
const stopMs = 30_000;

/**
 * Runs a command until it ends, or until standard input ends: then the command gets SIGINT, PostgreSQL's fast shutdown.
 * The other end of that pipe closes when our process ends, however it ends.
 */
const guard = `
trap '' HUP INT TERM
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ read -r _; kill -INT $server; } <&3 &
wait $server
code=$?
kill -KILL $!
exit $code`;

/** A PostgreSQL server that stops when this process ends. */
export class Server {
  readonly ended: Promise<void>;
  readonly #guard: ChildProcess;
  #running = true;

  private constructor(child: ChildProcess) {
    this.#guard = child;
    this.ended = new Promise((resolve) => {
      child.once('error', () => resolve());
      child.once('exit', () => resolve());
    });
    this.ended.then(() => {
      this.#running = false;
    });
    child.stdin!.on('error', () => {});
  }

  /** The server may end at once, for example when another one uses the cluster; the reason is in `cluster.log`. */
  static async launch(cluster: Cluster, port: number): Promise<Server> {
    const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'max_connections=200', 'fsync=on'];
    const args = ['-D', cluster.path, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
    const log = await open(cluster.log, 'a', 0o600);
    try {
      const child = spawn('/bin/sh', ['-c', guard, 'sh', join(cluster.bin, 'postgres'), ...args], {
        ...cluster.account,
        cwd: cluster.data,
        env: minimalEnvironment(),
        // A Ctrl-C in the terminal is for our process, which stops the server last.
        detached: true,
        stdio: ['pipe', log.fd, log.fd],
      });
      return new Server(child);
    } finally {
      await log.close();
    }
  }

  get running(): boolean {
    return this.#running;
  }

  /** Ends all sessions and shuts down. False if this takes too long. */
  async stop(): Promise<boolean> {
    this.#guard.stdin!.end();
    await Promise.race([this.ended, sleep(stopMs, undefined, { ref: false })]);
    return !this.#running;
  }
}
