import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { Certificates } from './certificates.ts';
import { freePort } from './ports.ts';
import { until } from './until.ts';

const password = 'pa/ss@wörd';
const account = `:${encodeURIComponent(password)}@`;

/** Redis servers with TLS only, and a password. */
async function servers({ ca, cert, key }: Certificates) {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-redis-'));
  const running: ChildProcess[] = [];
  const tls = [
    'port 0',
    `tls-ca-cert-file ${ca}`,
    `tls-cert-file ${cert}`,
    `tls-key-file ${key}`,
    'tls-auth-clients no',
  ];

  return {
    async start(port: number, settings: string[], ...mode: string[]): Promise<ChildProcess> {
      const home = join(directory, String(port));
      await mkdir(home);
      const file = join(home, 'redis.conf');
      await writeFile(file, [`tls-port ${port}`, 'bind 127.0.0.1', `dir ${home}`, ...tls, ...settings, ''].join('\n'));
      const child = spawn('redis-server', [file, ...mode], { stdio: 'ignore' });
      running.push(child);
      await until(`Redis to answer on ${port}`, () => this.ask(port, 'PING').catch(() => undefined));
      return child;
    },
    async ask(port: number, ...command: string[]): Promise<string> {
      const options = ['-p', `${port}`, '--tls', '--cacert', ca, '--no-auth-warning', '-a', password];
      const { stdout } = await promisify(execFile)('redis-cli', [...options, ...command], { timeout: 30_000 });
      if (/^(ERR|NOAUTH|LOADING|MASTERDOWN)/.test(stdout)) throw new Error(stdout);
      return stdout.trim();
    },
    async stop(): Promise<void> {
      for (const child of running) {
        if (child.exitCode !== null || child.signalCode !== null) continue;
        const ended = new Promise((resolve) => child.once('exit', resolve));
        child.kill('SIGKILL');
        await ended;
      }
      await rm(directory, { recursive: true, force: true });
    },
  };
}

const data = ['save ""', 'maxmemory-policy noeviction', `requirepass "${password}"`, `masterauth "${password}"`];

/** A primary, a replica, and a sentinel that makes this the primary when the other one is down for a second. */
export async function newSentinels(certificates: Certificates) {
  const { start, ask, stop } = await servers(certificates);
  const [first, second, sentinel] = [await freePort(), await freePort(), await freePort()];
  const self = { start, ask };
  const primary = await self.start(first, [...data, 'tls-replication yes']);
  await self.start(second, [...data, 'tls-replication yes', `replicaof 127.0.0.1 ${first}`]);
  await until('the replica to follow', async () => (await ask(second, 'INFO')).includes('master_link_status:up'));
  const watch = [
    `requirepass "${password}"`,
    'tls-replication yes',
    `sentinel monitor main 127.0.0.1 ${first} 1`,
    `sentinel auth-pass main "${password}"`,
    'sentinel down-after-milliseconds main 1000',
  ];
  await self.start(sentinel, watch, '--sentinel');
  await until('the sentinel to know the replica', async () => (await ask(sentinel, 'INFO')).includes('slaves=1'));
  return {
    url: `rediss-sentinel://${account}127.0.0.1:${sentinel}/2?sentinelPassword=${encodeURIComponent(password)}#main`,
    /** The primary itself. */
    primary: `rediss://${account}127.0.0.1:${first}/2`,
    /** How many keys the second server has, as a primary. */
    keysOfSecond: async () => Number(await ask(second, '-n', '2', 'DBSIZE')),
    killPrimary: () => primary.kill('SIGKILL'),
    stop,
  };
}

/** Three primaries, which share the slots. */
export async function newCluster(certificates: Certificates) {
  const { start, ask, stop } = await servers(certificates);
  const self = { start, ask };
  const ports = [await freePort(), await freePort(), await freePort()];
  for (const port of ports) {
    const bus = `cluster-port ${await freePort()}`;
    await self.start(port, [...data, bus, 'cluster-enabled yes', 'tls-cluster yes', 'cluster-node-timeout 2000']);
  }
  for (const [index, port] of ports.entries()) {
    const from = Math.floor((index * 16_384) / 3);
    const to = Math.floor(((index + 1) * 16_384) / 3) - 1;
    await ask(port, 'CLUSTER', 'ADDSLOTSRANGE', `${from}`, `${to}`);
  }
  const info = async (port: number) => (await ask(port, 'CLUSTER', 'INFO')).replaceAll('\r', '');
  for (const port of ports.slice(1)) {
    const bus = /cluster-port (\d+)/.exec(
      await ask(port, 'CONFIG', 'GET', 'cluster-port').then((t) => t.replace('\n', ' ')),
    );
    await ask(ports[0]!, 'CLUSTER', 'MEET', '127.0.0.1', `${port}`, bus![1]!);
  }
  for (const port of ports) await until('the cluster', async () => (await info(port)).includes('cluster_state:ok'));
  return {
    // One server is enough: it knows the others.
    url: `rediss-cluster://${account}127.0.0.1:${ports[1]}`,
    /** Keys on each server. */
    keys: () => Promise.all(ports.map(async (port) => Number(await ask(port, 'DBSIZE')))),
    stop,
  };
}
