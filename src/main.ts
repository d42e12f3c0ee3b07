#!/usr/bin/env node
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { CommanderError } from 'commander';
import { createApiClient } from './cli/client.ts';
import { demo } from './cli/demo.ts';
import { doctor } from './cli/doctor.ts';
import { library, type StartDatabase } from './cli/library.ts';
import { exitCodeOf, program } from './cli/program.ts';
import { rebuild } from './cli/rebuild.ts';
import { readClientConfig, readConfig } from './config.ts';
import { examine } from './doctor.ts';
import { ConfigurationError, reasonOf } from './errors.ts';
import { createLog } from './log.ts';
import { type RebuildReport, rebuildFrom } from './rebuild.ts';
import { findAdminToken } from './secrets.ts';
import { startService } from './service.ts';
import { startEmbeddedPostgres } from './store/embedded.ts';
import { version } from './version.ts';

/** One Ctrl-C reaches a process that npm runs twice: from the terminal, and passed on by npm. */
const sameKeystrokeMs = 250;

/** The first signal asks for an orderly stop, the second ends at once. */
function stopSignal(): AbortSignal {
  const stop = new AbortController();
  let first: { signal: string; at: number } | undefined;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      if (!first) {
        first = { signal, at: Date.now() };
        stop.abort();
      } else if (signal === 'SIGTERM' || signal !== first.signal || Date.now() - first.at > sameKeystrokeMs) {
        process.exit(signal === 'SIGINT' ? 130 : 143);
      }
    });
  }
  return stop.signal;
}

const aborted = (signal: AbortSignal) =>
  signal.aborted ? undefined : new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));

/** The port itself if it is free, else any that is. */
async function freePort(wanted: number): Promise<number> {
  for (const port of [wanted, 0]) {
    const server = createServer();
    const found = await new Promise<number | undefined>((resolve) => {
      server.once('error', () => resolve(undefined));
      server.listen(port, '127.0.0.1', () => resolve((server.address() as { port: number }).port));
    });
    if (found !== undefined) {
      await new Promise((resolve) => server.close(resolve));
      return found;
    }
  }
  throw new Error('no free port');
}

/** What the library and the demo say of it is said on the terminal, where only trouble is of interest. */
const startDatabase: StartDatabase = (directory) =>
  startEmbeddedPostgres({
    directory,
    log: createLog({ level: 'warn', pretty: process.stderr.isTTY, destination: process.stderr }),
  });

// Whoever reads what is printed may have read enough, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(process.exitCode ?? 0);
});

if (existsSync('.env')) process.loadEnvFile('.env');
const app = program(
  {
    async start(role) {
      const config = readConfig(process.env);
      const log = createLog(config.log);
      // Said in the log, where secrets are left out, and not by the runtime, which prints everything.
      for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
        process.on(event, (err) => {
          log.fatal({ err }, 'this should not happen; ending');
          process.exit(1);
        });
      }
      const stop = stopSignal();
      const service = await startService(config, log, role, stop).catch((error) => {
        if (error !== stop.reason) throw error;
        log.info('stopped while starting');
      });
      if (!service) return;
      const { adminToken, adminTokenIsNew, adminTokenFile } = service.context;
      if (adminTokenIsNew && role !== 'worker') {
        process.stderr.write(`The operators' token, shown this once and kept in ${adminTokenFile}:\n${adminToken}\n`);
      }
      await aborted(stop);
      await service.stop();
    },
    async demo(options) {
      const stop = stopSignal();
      await demo(options, { environment: process.env, readConfig, startDatabase, startService, freePort, stop });
    },
    async library(options) {
      await library(options, { dataDir: process.env.DATA_DIR || 'data', startDatabase, stop: stopSignal() });
    },
    async doctor(options) {
      const wrong = await doctor(examine(readConfig(process.env), stopSignal()), options);
      if (wrong > 0) process.exitCode = 1;
    },
    async rebuild(options) {
      const config = readConfig(process.env);
      const log = createLog({ level: 'warn', pretty: process.stderr.isTTY, destination: process.stderr });
      const stop = stopSignal();
      const work = (report: RebuildReport) => rebuildFrom(config, { log, stop, report });
      if ((await rebuild(work, { ...options, stop })) > 0) process.exitCode ??= 1;
    },
    async api() {
      const config = readClientConfig(process.env);
      return createApiClient({
        url: config.url,
        adminToken: config.adminToken ?? (await findAdminToken(config.dataDir)),
      });
    },
  },
  version,
);

try {
  await app.parseAsync();
  // Whatever still holds a socket open has been told to close: the work is done.
  process.exit(process.exitCode ?? 0);
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : 2);
  if (error instanceof ConfigurationError) {
    process.stderr.write(
      `asset-mirror: wrong or missing settings\n${error.problems.map((problem) => `  ${problem}\n`).join('')}`,
    );
    process.exit(2);
  }
  process.stderr.write(`asset-mirror: ${reasonOf(error)}\n`);
  process.exit(exitCodeOf(error));
}
