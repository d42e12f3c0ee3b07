import { Command, InvalidArgumentError, Option } from 'commander';
import { type ApiClient, NotReachable } from './client.ts';
import { connectLink } from './connect-link.ts';
import type { DemoOptions } from './demo.ts';
import { rotateKeys } from './keys.ts';
import type { LibraryVerbOptions } from './library.ts';
import { plan } from './plan.ts';
import { type ResyncOptions, resync, UsageError } from './resync.ts';
import { type SetOptions, set } from './set.ts';
import { status } from './status.ts';
import { type VerifyOptions, verify } from './verify.ts';

/** What the verbs that start something need, from main. */
export interface Verbs {
  start(role: 'all' | 'web' | 'worker'): Promise<void>;
  demo(options: DemoOptions): Promise<void>;
  library(options: LibraryVerbOptions): Promise<void>;
  doctor(options: { json?: boolean }): Promise<void>;
  rebuild(options: { json?: boolean }): Promise<void>;
  api(): Promise<ApiClient>;
}

/** Every verb with its words. Exit codes: 0 done, 1 failures were found, 2 usage or configuration, 3 not reachable. */
export function program(verbs: Verbs, version: string): Command {
  // Before the verbs, which take it over: a wrong word ends with the code of a wrong use, wherever it stands.
  const app = new Command('asset-mirror')
    .exitOverride()
    .description("Keeps a complete, verified copy of a company's media library in object storage.")
    .version(version)
    .showHelpAfterError('(add --help for what is possible)')
    .configureHelp({ sortSubcommands: false, showGlobalOptions: false });

  const verb = (name: string, text: string) => app.command(name).description(text).option('--json', 'print JSON');

  verb('start', 'run the service: web (connect flow, API) and workers (syncs, transfers)')
    .addOption(new Option('--role <role>', 'what this process does').choices(['all', 'web', 'worker']).default('all'))
    .action(({ role }) => verbs.start(role));

  verb('demo', 'library and mirror together, nothing to install: connect, mirror, look')
    .option('--once', 'exit when everything is mirrored')
    .option('--assets <n>', 'how many sample assets', wholeNumber(1, 100_000), 300)
    .option('--media <dir>', 'serve a folder of your own instead of samples')
    .action((options) => verbs.demo(options));

  verb('library', 'run the library alone: the whole service of the specification')
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on', wholeNumber(0, 65_535), 8090)
    .option('--public-url <url>', 'where people and apps reach it, if it is elsewhere')
    .option('--admin-port <port>', 'port of the admin API for tests and demos', wholeNumber(0, 65_535))
    .option('--media <dir>', 'serve a folder')
    .option('--synthetic <n>', 'serve so many made-up assets', wholeNumber(0, 10_000_000))
    .option('--seed <n>', 'other made-up content', wholeNumber(0, 2 ** 31))
    .addOption(
      new Option('--database <url>', 'PostgreSQL for its schema "library"; else one under DATA_DIR').env(
        'LIBRARY_DATABASE_URL',
      ),
    )
    .option('--in-memory', 'forget apps, grants and tokens at the end')
    .option('--client-id <id>', 'of the registered app')
    .option('--client-secret <secret>', 'of the registered app')
    .option('--rotate-secret', 'make a new secret for the registered app')
    .option('--redirect-uri <url>', 'of the registered app; may be repeated', collect)
    .option('--app-name <name>', 'of the registered app, as users see it')
    .option('--logo-url <url>', 'of the registered app: https, PNG or SVG')
    .option('--website-url <url>', 'of the registered app')
    .option('--auto-consent', 'approve without pages')
    .action((options) => verbs.library(options));

  verb('connect-link', 'make a signed link with which a user connects an account')
    .option('--connection <id>', 'reconnect this connection')
    .action(async (options) => connectLink(await verbs.api(), options));

  verb('status', 'what is connected, how far each one is, rate and time left')
    .option('--watch', 'until interrupted')
    .action(async (options) => status(await verbs.api(), options));

  verb('resync', 'sync a connection now')
    .argument('<connection>')
    .option(
      '--full',
      'list everything, look again at what failed or was unavailable; alone: make again what the bucket lacks',
    )
    .option('--since <time>', 'uploads after this date')
    .option('--company <id>', 'one company only')
    .option('--project <id>', 'one project only')
    .option('--type <type>', 'one asset type only, such as videos or "brand assets"')
    .option('--asset <id>', 'this asset; may be repeated', collect)
    .option('--accept-gone', 'full, and what the listing lacks is gone, even when it is half of all')
    .action(async (connection: string, options: ResyncOptions) => resync(await verbs.api(), connection, options));

  verb('plan', 'what a full sync would move: lists the library, moves and writes nothing')
    .argument('[connection]', 'of this one only; else of all that are active')
    .addHelpText('after', '\nIt takes as long as a listing does. Ctrl-C ends it, in the service too.')
    .action(async (connection: string | undefined, options) => {
      if ((await plan(await verbs.api(), connection, options)) > 0) process.exitCode = 1;
    });

  verb('verify', 'compare library, records and bucket; exit 1 on any difference')
    .option('--connection <id>', 'of one connection only')
    .option('--deep', 'read every object and compare its checksum')
    .option('--repair', 'have what is missing or differs fetched or written again')
    .option('--inventory', "write the day's inventory at the end")
    .option('--all', 'print what is as it should be, too')
    .action(async (options: VerifyOptions) => {
      if ((await verify(await verbs.api(), options)) > 0) process.exitCode = 1;
    });
  verb('set', 'settings of a connection; without one, of the running service; a change takes effect at once')
    .argument('[connection]')
    .option('--interval <duration>', 'between its syncs, such as 15m')
    .option('--include <what>', 'mirror only this: type=videos, company=ID or project=ID; may be repeated', collect)
    .option('--exclude <what>', 'leave this out, in the same words, whatever is included; may be repeated', collect)
    .option('--concurrency <n>', 'its assets that are on their way at once')
    .option('--bandwidth <rate>', 'what each process may download, for it or for all, such as 20MiB/s')
    .addHelpText(
      'after',
      `
Each option may be "default": as in the environment. --include and --exclude replace what was set of the same kind, and
"none" alone takes all of them away. Of several of a kind any counts, of several kinds each must: --include type=videos
--include type=audio --include company=acme is the videos and sounds of acme. What becomes left out stays in the bucket,
what is let in is mirrored at once. Without any option it says how things are.`,
    )
    .action(async (connection: string | undefined, options: SetOptions) => set(await verbs.api(), connection, options));

  verb('doctor', 'look at configuration, database, queue, bucket and library; say what to mend').action((options) =>
    verbs.doctor(options),
  );

  verb('rebuild', 'make the records again from those in the bucket; nothing is downloaded').action((options) =>
    verbs.rebuild(options),
  );

  app
    .command('keys')
    .description('the keys with which tokens are encrypted')
    .command('rotate')
    .description('encrypt all tokens again, with the first of ENCRYPTION_KEYS')
    .option('--json', 'print JSON')
    .action(async (options) => {
      if ((await rotateKeys(await verbs.api(), options)) > 0) process.exitCode = 1;
    });

  return app;
}

/** What an error says on the terminal, and with which code the process ends. */
export function exitCodeOf(error: unknown): number {
  if (error instanceof NotReachable) return 3;
  if (error instanceof UsageError) return 2;
  return 1;
}

const collect = (value: string, before: string[] = []) => [...before, value];

function wholeNumber(least: number, most: number) {
  return (text: string): number => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most))
      throw new InvalidArgumentError(`Expected a whole number from ${least} to ${most}.`);
    return value;
  };
}
