import { Option } from 'commander';
import type { ApiClient } from './client.ts';
import { collect, examples, mostRows, type NewVerb, wholeNumber } from './options.ts';
import { type AssetsOptions, assets, retry } from './verbs/assets.ts';
import { connectLink } from './verbs/connect-link.ts';
import { connections, disconnect, pause, resume } from './verbs/connections.ts';
import { type EventsOptions, events } from './verbs/events.ts';
import { explain } from './verbs/explain.ts';
import { plan } from './verbs/plan.ts';
import { type ResyncOptions, resync } from './verbs/resync.ts';
import { type SetOptions, set } from './verbs/set.ts';
import { status } from './verbs/status.ts';
import { syncs } from './verbs/syncs.ts';
import { type VerifyOptions, verify } from './verbs/verify.ts';

const states = ['pending', 'processing', 'transferring', 'mirrored', 'unavailable', 'failed', 'gone'];

/** The verbs that ask a running service something, or have it do something. */
export function operatorVerbs(verb: NewVerb, connect: () => Promise<ApiClient>): void {
  /** What failed, or differs, is told by the exit code. */
  const tell = (wrong: number) => {
    if (wrong > 0) process.exitCode = 1;
  };

  verb('connect-link', 'make a signed link with which a user connects an account')
    .option('--connection <id>', 'reconnect this connection')
    .action(async (options) => connectLink(await connect(), options));

  verb('status', 'what is connected, how far each one is, rate and time left')
    .option('--watch', 'until interrupted; with --json a line each second')
    .action(async (options) => status(await connect(), options));

  verb('connections', 'list connections')
    .addOption(new Option('--status <status>', 'only these').choices(['active', 'paused', 'disconnected']))
    .option('--search <text>', 'part of the name or address of its user, or of the name of a company')
    .action(async (options) => connections(await connect(), options));

  verb('assets', 'look for assets: what is mirrored, what is not, and why', 'All that is said must hold.')
    .option('--connection <id>', 'of this connection')
    .option('--company <id>', 'of this company')
    .option('--project <id>', 'of this project')
    .addOption(new Option('--state <state>', 'in this state').choices(states))
    .option('--type <type>', 'of this type, such as videos or "brand assets"')
    .option('--skipped', 'those that the settings skip')
    .option('--search <text>', 'part of the name, in any case; or an id')
    .option('--limit <n>', 'so many', wholeNumber(1, mostRows), 50)
    .option('--all', 'to the end; with --json one a line')
    .addHelpText(
      'after',
      examples('asset-mirror assets --state failed', 'asset-mirror assets --search interview --type videos'),
    )
    .action(async (options: AssetsOptions) => assets(await connect(), options));

  verb('syncs', 'list runs, the newest first: what they saw, what was new, what went wrong')
    .option('--connection <id>', 'of this connection')
    .option('--limit <n>', 'so many', wholeNumber(1, mostRows), 20)
    .action(async (options) => syncs(await connect(), options));

  verb('events', 'what happened, the newest last: failures, disconnects, what operators did')
    .option('--connection <id>', 'of this connection')
    .option('--asset <id>', 'of this asset')
    .option('--kind <kind>', 'of this kind, such as asset.failed or operator.resyncConnection')
    .option('--limit <n>', 'so many of the past', wholeNumber(1, mostRows), 20)
    .option('--follow', 'until interrupted, as it happens; with --json one a line')
    .addHelpText(
      'after',
      examples('asset-mirror events --follow', 'asset-mirror events --kind connection.disconnected --json'),
    )
    .action(async (options: EventsOptions) => events(await connect(), options));

  verb(
    'resync',
    'sync a connection now',
    'Without options it asks for what is new. A run over everything also looks again at what failed.',
  )
    .argument('<connection>', 'its id, as `asset-mirror connections` lists it')
    .option('--full', 'list everything; alone: also make again what the bucket lacks')
    .option('--since <time>', 'uploads after this date, such as 2026-01-31')
    .option('--company <id>', 'one company only')
    .option('--project <id>', 'one project only')
    .option('--type <type>', 'one asset type only, such as videos or "brand assets"')
    .option('--asset <id>', 'this asset; may be repeated', collect)
    .option('--accept-gone', 'full, and what the listing lacks is gone, even when it is half of all')
    .option('--wait', 'until what it finds is mirrored; exit 1 when any of that fails')
    .addHelpText(
      'after',
      examples('asset-mirror resync CONNECTION --full --wait', 'asset-mirror resync CONNECTION --asset a1 --asset a2'),
    )
    .action(async (connection: string, options: ResyncOptions) =>
      tell(await resync(await connect(), connection, options)),
    );

  verb(
    'retry',
    'try assets again, or all that have failed',
    'What was given up of a transcript or a thumbnail is looked for again, too.',
  )
    .argument('[asset...]', 'ids, as `asset-mirror assets` lists them')
    .option('--failed', 'all that have failed')
    .option('--connection <id>', 'with --failed: of this connection only')
    .addHelpText('after', examples('asset-mirror retry a1 a2', 'asset-mirror retry --failed'))
    .action(async (ids: string[], options) => tell(await retry(await connect(), ids, options)));

  verb(
    'pause',
    'do nothing more for a connection until it is resumed',
    'What is in hand stops at once, and is gone on with later.',
  )
    .argument('<connection>', 'its id, as `asset-mirror connections` lists it')
    .action(async (id: string, options) => pause(await connect(), id, options));

  verb('resume', 'let a paused connection go on')
    .argument('<connection>', 'its id, as `asset-mirror connections` lists it')
    .action(async (id: string, options) => resume(await connect(), id, options));

  verb(
    'disconnect',
    'end a connection, here and at the service',
    'What is in the bucket stays. Its user has to connect again before anything more is mirrored.',
  )
    .argument('<connection>', 'its id, as `asset-mirror connections` lists it')
    .option('--yes', 'do not ask whether that is meant')
    .action(async (id: string, options) => disconnect(await connect(), id, options));

  verb('explain', "one asset's whole stepLog: seen, decided, tried, stored, verified, or why not")
    .argument('<asset>', 'its id, as `asset-mirror assets` lists it')
    .action(async (asset: string, options) => explain(await connect(), asset, options));

  verb('plan', 'what a full sync would move: lists the library, moves and writes nothing')
    .argument('[connection]', 'of this one only; else of all that are active')
    .addHelpText('after', '\nIt takes as long as a listing does. Ctrl-C ends it, in the service too.')
    .action(async (connection: string | undefined, options) => tell(await plan(await connect(), connection, options)));

  verb('verify', 'compare library, records and bucket; exit 1 on any difference')
    .option('--connection <id>', 'of one connection only')
    .option('--deep', 'read every object and compare its checksum')
    .option('--repair', 'have what is missing or differs fetched or written again')
    .option('--inventory', "write the day's inventory at the end")
    .option('--all', 'print what is as it should be, too')
    .action(async (options: VerifyOptions) => tell(await verify(await connect(), options)));

  verb('set', 'change settings of a connection, or without one of the running service; at once')
    .argument('[connection]', 'its id, as `asset-mirror connections` lists it')
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
--include type=audio --include company=acme is the videos and sounds of acme. What becomes skipped stays in the bucket,
what is let in is mirrored at once. Without any option it says how things are.`,
    )
    .action(async (connection: string | undefined, options: SetOptions) => set(await connect(), connection, options));
}
