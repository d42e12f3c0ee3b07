import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Config, readConfig } from '../../config/config.ts';
import { signingSeedsOf } from '../../config/secrets.ts';
import { createLog, type Log } from '../../floor/log.ts';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import { type LibraryOptions, startLibrary } from '../../library/index.ts';
import type { Operations } from '../../operations/operations.ts';
import type { Status } from '../answers.ts';
import { connectLikeABrowser } from '../browser.ts';
import { liveLine, transferLine } from '../live.ts';
import { counted, harmless, paint, print, printJson } from '../output.ts';
import { stopSignal } from '../stop-signal.ts';
import type { StartDatabase } from './library.ts';

export interface DemoOptions {
  once?: boolean;
  assets: number;
  media?: string;
  json?: boolean;
}

/** The running mirror: the parts that the demo uses. */
interface RunningService {
  url: string;
  operations: Operations;
  adminToken: string;
  storage: string;
  stop(): Promise<void>;
}

export interface DemoDeps {
  /** The environment of the process. */
  environment: Readonly<Record<string, string | undefined>>;
  startDatabase: StartDatabase;
  startService: (config: Config, log: Log) => Promise<RunningService>;
  freePort: (wanted: number) => Promise<number>;
}

const credentials = { clientId: 'asset-mirror-demo', clientSecret: 'svcs_for-the-demo-only' };

/** Only a few settings of the environment apply: samples must not reach the database or bucket of a real mirror. */
const settingsOf = (environment: DemoDeps['environment'], dataDir: string) => ({
  // Short, because a user watches the demo.
  SYNC_INTERVAL: '15s',
  PROCESSING_POLL: '2s',
  TRANSCRIPT_DELAY: '2s',
  ...pick(environment, ['LOG_LEVEL', 'TRANSFER_CONCURRENCY', 'CONNECTION_CONCURRENCY', 'BANDWIDTH_LIMIT']),
  DATA_DIR: dataDir,
  LIBRARY_CLIENT_ID: credentials.clientId,
  LIBRARY_CLIENT_SECRET: credentials.clientSecret,
});

/** Runs library and mirror with embedded defaults, connects them, shows the progress and keeps both running. */
export async function demo(options: DemoOptions, deps: DemoDeps): Promise<void> {
  const { environment } = deps;
  const say = options.json ? () => {} : print;
  const dataDir = join(environment.DATA_DIR || 'data', 'demo');
  const settings = settingsOf(environment, dataDir);
  const libraryAt = (url: string) => ({ LIBRARY_API_URL: url, LIBRARY_APP_URL: url });
  // Reports wrong settings before anything is started.
  const wanted = readConfig({ ...settings, ...pick(environment, ['PORT']), ...libraryAt('http://localhost') });
  const stop = stopSignal();
  const port = await deps.freePort(wanted.port);
  const publicUrl = `http://localhost:${port}`;
  const content: LibraryOptions['content'] =
    options.media === undefined ? { samples: options.assets } : { media: options.media };
  say(paint('dim', 'starting PostgreSQL, the library and the mirror …'));
  await using databases = new AsyncDisposableStack();
  const { url: databaseUrl, stop: stopDatabase } = await deps.startDatabase(dataDir);
  databases.defer(stopDatabase);
  // The library has its own schema in the same database.
  const library = await startLibrary({
    ...credentials,
    databaseUrl,
    port: await deps.freePort(8090),
    redirectUris: [`${publicUrl}/oauth/callback`],
    autoConsent: true,
    transcodeDelay: 5000,
    transcriptDelay: 3000,
    content,
  });
  const config = readConfig({
    ...settings,
    ...libraryAt(library.apiUrl),
    PORT: String(port),
    PUBLIC_URL: publicUrl,
  });
  const logFile = join(config.dataDir, 'asset-mirror.log');
  const logStream = createWriteStream(logFile, { flags: 'a' });
  const log = createLog({ level: config.log.level, pretty: false, destination: logStream });
  // A service with DATABASE_URL generates no signing keys.
  const signing = await signingSeedsOf(config);
  const service = await deps.startService({ ...config, databaseUrl, signingKeys: signing?.seeds }, log);
  try {
    say(`${paint('bold', 'library')}  ${library.appUrl}   ${options.media ?? `${options.assets} sample assets`}`);
    say(`${paint('bold', 'mirror')}   ${service.url}   → ${service.storage}`);
    const before = (await service.operations.status()).assets;
    if (before.total > 0) {
      const earlier = counted(before.total, 'asset');
      say(paint('dim', `         ${earlier} of earlier runs are included; delete ${dataDir} to start again`));
    }
    say();
    const started = performance.now();
    await connectLikeABrowser((await service.operations.createConnectLink({})).url);
    say(
      `${paint('green', '✓')} connected as ${library.users[0]!.email} (OAuth 2.0 with PKCE, consent given by the demo)`,
    );
    const result = await watchUntilQuiet(service.operations, options.json === true, stop);
    const ended = { ms: Math.round(performance.now() - started), interrupted: stop.aborted };
    await summarize({ service, result, ...ended, before, json: options.json === true });
    const { byState } = result.assets;
    if (ended.interrupted) process.exitCode = 130;
    else if (options.once && byState.failed + byState.pending + byState.transferring > 0) process.exitCode = 1;
    if (!options.once && !stop.aborted) {
      say(`
${paint('bold', 'What to look at')}
  the files      ${service.storage}
  the dashboard  ${service.url}   (sign in with ${service.adminToken})
  the library    ${library.appUrl}/profile   (${library.users[0]!.email}, password ${library.users[0]!.password})
  the status     ADMIN_TOKEN=${service.adminToken} ASSET_MIRROR_URL=${service.url} npm run -s asset-mirror -- status
  the log        ${logFile}

Everything keeps running. Press Ctrl-C to stop.`);
      await once(stop, 'abort');
      say('\nStopping…');
    }
  } finally {
    await service.stop();
    await library.close();
    await new Promise((resolve) => logStream.end(resolve));
  }
}

function pick(environment: DemoDeps['environment'], names: string[]) {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => names.includes(name)));
}

/** How long the demo waits for processing videos and retries before it sums up. */
const patienceMs = 60_000;

/** Shows the progress until nothing more is expected soon. */
async function watchUntilQuiet(operations: Operations, silent: boolean, stop: AbortSignal): Promise<Status> {
  const live = liveLine({ silent });
  let quietSince = 0;
  for (;;) {
    const status = await operations.status();
    const { byState, total } = status.assets;
    const moving = byState.pending + byState.transferring;
    live.show(progressLine(status, total - moving - byState.processing));
    if (moving > status.outstanding.later || status.syncs.waiting + status.syncs.running > 0) quietSince = 0;
    else quietSince ||= performance.now();
    const isWaiting = byState.processing + moving > 0 && performance.now() - quietSince < patienceMs;
    if (stop.aborted || (quietSince > 0 && !isWaiting)) {
      live.end();
      return status;
    }
    await sleep(200);
  }
}

function progressLine(status: Status, done: number): string {
  const { byState, total } = status.assets;
  const isListing = status.syncs.waiting + status.syncs.running > 0;
  const { processing } = byState;
  const note = isListing ? 'listing' : processing > 0 ? `${processing} still processing at the library` : '';
  return `${transferLine(done, total, status)}  ${note}`;
}

async function summarize(end: {
  service: RunningService;
  result: Status;
  ms: number;
  interrupted: boolean;
  /** The assets of earlier runs in the same directory. */
  before: Status['assets'];
  json: boolean;
}): Promise<void> {
  const { result, service } = end;
  const waiting: { count: number; why: string }[] = [];
  const { byState, total, expected } = result.assets;
  if (byState.processing > 0)
    waiting.push({
      count: byState.processing,
      why: 'still processing at the library; checked every few seconds',
    });
  if (result.outstanding.sidecars > 0)
    waiting.push({
      count: result.outstanding.sidecars,
      why: 'mirrored; waiting for a transcript or thumbnail',
    });
  for (const state of ['transferring', 'pending', 'unavailable', 'failed'] as const) {
    const { assets } = await service.operations.assets({ state, limit: 250 });
    // A reason may contain the id; equal reasons share a line.
    const reasons = Map.groupBy(assets, ({ id, reason }) => reason?.text.replaceAll(id, '…') ?? '');
    const more = byState[state] - assets.length;
    for (const [reason, list] of reasons) {
      const count = list.length + (reason === '' && more > 0 ? more : 0);
      waiting.push({ count, why: reason === '' ? `${state}` : `${state}: ${reason}` });
    }
  }
  const summary = {
    ...(end.interrupted && { interrupted: true }),
    assets: total,
    mirrored: byState.mirrored,
    new: byState.mirrored - end.before.byState.mirrored,
    ...(end.before.total > 0 && { earlier: end.before.total }),
    bytes: result.bytes,
    seconds: Math.round(end.ms / 100) / 10,
    where: service.storage,
    waiting,
  };
  if (end.json) return printJson(summary);
  const isComplete = !end.interrupted && byState.failed + byState.pending + byState.transferring === 0;
  const lead = end.interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
  const mirrored = paint(
    isComplete ? 'green' : 'yellow',
    paint('bold', `${summary.mirrored} of ${expected} assets mirrored`),
  );
  const took =
    summary.new > 0
      ? `${formatBytes(result.bytes)} in ${formatDuration(end.ms)}${end.before.byState.mirrored > 0 ? ` (${end.before.byState.mirrored} were already mirrored)` : ''}`
      : `${formatBytes(result.bytes)}, nothing new`;
  print(`\n${lead}${mirrored}, ${took}`);
  if (summary.new > 0)
    print('asset-mirror verified the length and checksum of each file before it wrote the .asset.json.');
  print(`  ${summary.where}`);
  if (waiting.length > 0) print(`\n${paint('bold', 'Not mirrored')}`);
  for (const { count, why } of waiting) print(`  ${String(count).padStart(4)}  ${harmless(why)}`);
}
