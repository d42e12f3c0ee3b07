import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { probePort } from '../../config/preflight.ts';
import { InUse } from '../../floor/errors.ts';
import { formatBytes } from '../../floor/units.ts';
import { type LibraryOptions, startLibrary } from '../../library/index.ts';
import { UsageError } from '../failures.ts';
import { jsonOf, paint, print, printError, printJsonLine } from '../output.ts';
import { stopSignal } from '../stop-signal.ts';

export interface LibraryVerbOptions {
  host: string;
  port: number;
  publicUrl?: string;
  adminPort?: number;
  media?: string;
  synthetic?: number;
  maxSize?: number;
  seed?: number;
  database?: string;
  inMemory?: boolean;
  clientId?: string;
  clientSecret?: string;
  rotateSecret?: boolean;
  redirectUri?: string[];
  appName?: string;
  logoUrl?: string;
  websiteUrl?: string;
  autoConsent?: boolean;
  json?: boolean;
}

export interface LibraryDeps {
  dataDir: string;
  /** An embedded PostgreSQL, under a directory. */
  startDatabase: StartDatabase;
}

export type StartDatabase = (directory: string) => Promise<{ url: string; stop(): Promise<void> }>;

/** Runs the library alone, until stopped. */
export async function library(options: LibraryVerbOptions, deps: LibraryDeps): Promise<void> {
  const { json, inMemory, host, port, adminPort } = options;
  const database = options.database || undefined;
  // Do not print its password.
  if (database && !/^postgres(ql)?:$/.test(URL.parse(database)?.protocol ?? '')) {
    throw new UsageError(
      '--database (LIBRARY_DATABASE_URL) is not the address of a PostgreSQL database; expected postgres://user:password@host/database.',
    );
  }
  if (options.maxSize !== undefined && options.synthetic === undefined) {
    throw new UsageError('--max-size limits generated files; use --synthetic, too.');
  }
  // Before the library creates a secret, which it shows only once.
  await probePort('--port', host, port);
  if (adminPort !== undefined) await probePort('--admin-port', '127.0.0.1', adminPort);
  const stop = stopSignal();
  await using running = new AsyncDisposableStack();
  let databaseUrl = database;
  let credentials: string | undefined;
  if (!inMemory && databaseUrl === undefined) {
    const directory = join(deps.dataDir, 'library');
    const embedded = await deps.startDatabase(directory).catch((error) => {
      if (!(error instanceof InUse)) throw error;
      printError(`Another library runs in ${directory}; this one keeps nothing when it ends.`);
    });
    if (embedded) {
      running.defer(() => embedded.stop());
      databaseUrl = embedded.url;
      credentials = join(directory, 'app.json');
    }
  }
  const service = await startLibrary({
    ...settingsOf(options),
    ...(!inMemory && databaseUrl !== undefined && { databaseUrl }),
  });
  running.defer(() => service.close());
  const { apiUrl, appUrl, adminUrl, clientId, users, bytes } = service;
  const clientSecret = service.clientSecret ?? (await keptSecret(credentials, clientId));
  if (service.clientSecret && credentials) {
    await writeFile(credentials, `${JSON.stringify({ clientId, clientSecret })}\n`, { mode: 0o600 });
  }
  if (json) {
    printJsonLine({ apiUrl, appUrl, adminUrl, clientId, clientSecret, users, bytes });
  } else {
    print(`${paint('bold', 'The library is running.')} A mirror of it needs:

LIBRARY_API_URL=${apiUrl}
LIBRARY_APP_URL=${appUrl}
LIBRARY_CLIENT_ID=${clientId}
LIBRARY_CLIENT_SECRET=${clientSecret ?? '(shown only when it was created; --rotate-secret creates another)'}
`);
    if (bytes !== undefined) print(`It serves ${options.synthetic} generated assets, about ${formatBytes(bytes)}.`);
    for (const user of users) print(`Sign in as ${user.email} with the password ${user.password}`);
    if (adminUrl) print(`Admin API: ${adminUrl}`);
  }
  if (!stop.aborted) await once(stop, 'abort');
}

/** The client secret. The library shows it only when it is created, so it is kept in this file. */
async function keptSecret(path: string | undefined, clientId: string): Promise<string | null> {
  const text = path && (await readFile(path, 'utf8').catch(() => undefined));
  const kept = text ? (JSON.parse(text) as { clientId: string; clientSecret: string }) : undefined;
  return kept?.clientId === clientId ? kept.clientSecret : null;
}

function settingsOf(options: LibraryVerbOptions): LibraryOptions {
  const { host, port, media, synthetic, seed, redirectUri: redirectUris, appName, logoUrl, websiteUrl } = options;
  const { publicUrl, adminPort, clientId, clientSecret, rotateSecret, autoConsent, maxSize } = options;
  const made = defined({ seed });
  const given = {
    publicUrl,
    adminPort,
    clientId,
    clientSecret,
    rotateSecret,
    autoConsent,
    redirectUris,
    app: defined({ name: appName, logoUrl, websiteUrl }),
  };
  return {
    host,
    port,
    content:
      media !== undefined
        ? { media }
        : synthetic !== undefined
          ? { synthetic, ...made, ...defined({ maxSize }) }
          : { samples: 300, ...made },
    transcodeDelay: 20_000,
    transcriptDelay: 120_000,
    // Errors are logged, requests are not.
    log: (line) => {
      if ('error' in line || 'warning' in line) printError(jsonOf(line));
    },
    ...defined(given),
  };
}

type Defined<T> = { [Key in keyof T]?: Exclude<T[Key], undefined> };

function defined<T extends object>(value: T): Defined<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Defined<T>;
}
