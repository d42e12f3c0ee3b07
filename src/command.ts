import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { CommanderError } from 'commander';
import { exitCodeOf, problemOf } from './cli/failures.ts';
import { harmless, jsonOf, printError } from './cli/output.ts';
import { program } from './cli/program.ts';
import { stopSignal } from './cli/stop-signal.ts';
import { setExitCode, type Verbs } from './cli/verb.ts';
import type { StartDatabase } from './cli/verbs/library.ts';
import type { ContextOptions } from './context.ts';
import { ConfigurationError, fullReasonOf } from './floor/errors.ts';
import { version } from './floor/version.ts';
import type { Role } from './service.ts';
import { embeddedPostgresIsInstalled } from './store/embedded/binaries.ts';
import { freePort } from './store/embedded/free-port.ts';
import { setTracing, stopTracing } from './tracing/tracing.ts';

/** The embedded PostgreSQL of the library and the demo. Logs only warnings, to the terminal. */
const startDatabase: StartDatabase = async (directory) => {
  const { makeDataDir } = await import('./config/preflight.ts');
  const { startEmbeddedPostgres } = await import('./store/embedded/embedded.ts');
  const log = await terminalLog();
  await makeDataDir(resolve(directory), log);
  return startEmbeddedPostgres({ directory, log });
};

async function terminalLog() {
  const { createLog } = await import('./floor/log.ts');
  return createLog({ level: 'warn', pretty: process.stderr.isTTY, destination: process.stderr });
}

/**
 * Reads an .env file in the working directory into the environment. Client verbs do not: it could send the operator's exported
 * ADMIN_TOKEN to another address.
 */
async function settings() {
  if (existsSync('.env')) process.loadEnvFile('.env');
  return import('./config/config.ts');
}

async function configured() {
  const { readConfig } = await settings();
  return readConfig(process.env, { embedded: embeddedPostgresIsInstalled() });
}

// The reader of the output may close it early, as `head` does.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
  process.exit(process.exitCode ?? 0);
});

/** Runs the service until a signal stops it. */
async function start(role: Role, json: boolean, options: ContextOptions): Promise<void> {
  const config = await configured();
  // Instrumentation must start before the modules that it instruments are loaded.
  if (config.tracing) {
    const { startOpenTelemetry } = await import('./tracing/otel.ts');
    setTracing(startOpenTelemetry({ ...config.tracing, version }));
  }
  const { createLog } = await import('./floor/log.ts');
  const { startService } = await import('./service.ts');
  const log = createLog(json ? { ...config.log, pretty: false } : config.log);
  // Node would print secrets; the log removes them.
  for (const event of ['uncaughtException', 'unhandledRejection'] as const) {
    process.on(event, (err) => {
      log.fatal({ event: 'service.crashed', err }, 'unexpected error, exiting');
      process.exit(1);
    });
  }
  const stop = stopSignal();
  const service = await startService(config, log, role, { ...options, signal: stop }).catch((error) => {
    if (error !== stop.reason) throw error;
    log.info({ event: 'service.start_interrupted' }, 'stopped while starting');
  });
  if (!service) return;
  const { value, made, file } = service.context.adminToken;
  if (made && role !== 'worker') {
    printError(`The admin token, which is shown only now and kept in ${file}:\n${value}`);
  }
  const { signingKeys, signingKeyMade } = service.context;
  if (signingKeys && signingKeyMade) {
    printError(
      `The fingerprint of the key that signs inventories, for auditors (docs/operate/proof.md):\n${signingKeys[0].keyId}`,
    );
  }
  if (!stop.aborted) await once(stop, 'abort');
  await service.stop();
  await stopTracing();
}

/** The clients of a running asset-mirror, and the token of this account for it. */
const clients = {
  async api() {
    const { readClientConfig } = await import('./config/config.ts');
    const { createApiClient } = await import('./cli/client.ts');
    const { savedToken } = await import('./config/credentials.ts');
    const { findAdminToken } = await import('./config/secrets.ts');
    const { url, token, dataDir } = readClientConfig(process.env);
    // The token of an asset-mirror on this machine must not reach another one.
    const isHere = ['localhost', '127.0.0.1', '[::1]'].includes(new URL(url).hostname);
    const local = () => (isHere ? findAdminToken(dataDir) : undefined);
    return createApiClient({ url, token: token ?? (await savedToken(url, process.env)) ?? (await local()) });
  },
  async credentials() {
    const { readClientConfig } = await import('./config/config.ts');
    const { savedToken, saveToken } = await import('./config/credentials.ts');
    const { createApiClient } = await import('./cli/client.ts');
    const { url } = readClientConfig(process.env);
    return {
      async api() {
        const token = await savedToken(url, process.env);
        return token === undefined ? undefined : createApiClient({ url, token });
      },
      save: (token) => saveToken(url, token, process.env),
    };
  },
} satisfies Partial<Verbs>;

const app = (options: ContextOptions) =>
  program(
    {
      start: (role, { json }) => start(role, json === true, options),
      async demo(options) {
        const { startService } = await import('./service.ts');
        const { demo } = await import('./cli/verbs/demo.ts');
        await demo(options, { environment: process.env, startDatabase, startService, freePort });
      },
      async library(options) {
        const { library } = await import('./cli/verbs/library.ts');
        await library(options, { dataDir: process.env.DATA_DIR || 'data', startDatabase });
      },
      async doctor(options) {
        const { examine } = await import('./doctor.ts');
        const { doctor } = await import('./cli/verbs/doctor.ts');
        setExitCode(await doctor(examine(await configured(), stopSignal()), options));
      },
      async offline({ database } = { database: true }) {
        const { readCopyConfig } = await settings();
        const config = readCopyConfig(process.env, { embedded: !database || embeddedPostgresIsInstalled() });
        return { config, log: await terminalLog() };
      },
      ...clients,
    },
    version,
  );

/** Runs the verb of `argv`, and ends the process. `options` are for `start`. */
export async function run(options: ContextOptions = {}): Promise<never> {
  try {
    await app(options).parseAsync();
    // All work is done; sockets may still be closing.
    process.exit(process.exitCode ?? 0);
  } catch (error) {
    const code = exitCodeOf(error);
    if (code !== 0 && process.argv.includes('--json')) printError(jsonOf(problemOf(error), 2));
    else if (error instanceof ConfigurationError) {
      printError(['asset-mirror: wrong or missing settings', ...error.problems].join('\n  '));
      if (error.remedy) printError(error.remedy);
    } else if (!(error instanceof CommanderError)) printError(`asset-mirror: ${harmless(fullReasonOf(error))}`);
    process.exit(code);
  }
}
