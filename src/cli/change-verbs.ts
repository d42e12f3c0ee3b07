import { collect, collectTags, connectionName, startDate } from './options.ts';
import { type NewVerb, type Verbs, withApi } from './verb.ts';
import { retry } from './verbs/assets.ts';
import { connectLink, disconnect, pause, resume } from './verbs/connections.ts';
import { resync } from './verbs/resync.ts';
import { set } from './verbs/set.ts';

/** The verbs that connect accounts and change connections. */
export function changeVerbs(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'connect-link',
    'create a signed link for a user to connect an account; it works for 7 days',
    'asset-mirror connect-link --connection CONNECTION',
  )
    .option('--connection <name>', 'reconnect this connection instead')
    .option(
      '--return-url <url>',
      'return the user to this page afterwards; CONNECT_RETURN_ORIGINS must contain its origin',
    )
    .option('--tag <key=value>', 'tag of the connection, such as client=acme; may be repeated', collectTags)
    .action(withApi(api, connectLink));

  resyncVerb(verb, api);

  verb(
    'retry',
    'try assets again, also transcripts and thumbnails that were given up',
    'asset-mirror retry --failed',
    'Name the assets, or use --failed.',
  )
    .argument('[asset...]', 'their ids, from `asset-mirror assets`')
    .option('--failed', 'all failed assets')
    .option('--connection <name>', 'with --failed: only of this connection')
    .action(withApi(api, retry));

  verb(
    'pause',
    'stop all work for a connection until you resume it',
    'asset-mirror pause CONNECTION',
    'Transfers stop at once and continue later where they were.',
  )
    .argument('<connection>', connectionName)
    .action(withApi(api, pause));

  verb('resume', 'continue a paused connection, starting with a sync', 'asset-mirror resume CONNECTION')
    .argument('<connection>', connectionName)
    .action(withApi(api, resume));

  verb(
    'disconnect',
    'end a connection and revoke its grant at the library',
    'asset-mirror disconnect CONNECTION --yes',
    'The bucket keeps its files, and `verify` no longer lists its library. The user must connect again to continue.',
  )
    .argument('<connection>', connectionName)
    .option('--yes', 'do not ask for confirmation')
    .action(withApi(api, disconnect));

  setVerb(verb, api);
}

function resyncVerb(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'resync',
    'start a sync of a connection now',
    'asset-mirror resync CONNECTION --full --wait',
    'Without options it is incremental: it lists new uploads only.',
  )
    .argument('<connection>', connectionName)
    .option('--full', 'list everything and retry failed assets; unless other options limit it, also repair the bucket')
    .option(
      '--since <time>',
      'only uploads after the start of this day (UTC), such as 2026-01-31, or after this time',
      startDate,
    )
    .option('--company <id>', 'only this company')
    .option('--project <id>', 'only this project')
    .option('--type <type>', 'only this asset type, such as videos or "brand assets"')
    .option('--asset <id>', 'only this asset; may be repeated', collect)
    .option(
      '--accept-gone',
      'mark all missing assets as gone, without checking each one at the library; starts a full sync',
    )
    .option('--accept-replaced', 'let the new files found so far replace the mirrored ones; starts a full sync')
    .option('--accept-removed', 'let GONE_RETENTION remove all assets that are due now; starts a full sync')
    .option(
      '--wait',
      'wait until everything found is mirrored; exit with 1 if anything failed, is held, or must wait for over 5 minutes',
    )
    .action(withApi(api, resync));
}

function setVerb(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'set',
    'change the settings of a connection, or the bandwidth limit of all processes',
    [
      'asset-mirror set CONNECTION --include type=videos --include type=audio',
      'asset-mirror set --bandwidth "Mon-Fri 08:00-18:00 10MiB/s, else unlimited Europe/Berlin"',
    ],
    [
      'Without options it shows the settings. Changes apply at once. With "default" as value, the environment variable applies again.',
      '--include and --exclude replace the earlier filters of the same option; "none" clears them. An asset is mirrored if it matches one included value of each kind (type, company, project) and no excluded value. Files in the bucket stay, even if a filter skips them now.',
    ].join('\n\n'),
  )
    .argument('[connection]', `${connectionName} (without it, --bandwidth applies to all processes)`)
    .option('--interval <duration>', 'time between incremental syncs, such as 15m')
    .option('--include <what>', 'mirror only this: type=videos, company=ID or project=ID; may be repeated', collect)
    .option('--exclude <what>', 'skip this, in the same form; may be repeated', collect)
    .option('--concurrency <n>', 'maximum assets in transfer at once')
    .option('--bandwidth <rate>', 'download limit of each process, such as 20MiB/s, or a timetable')
    .option(
      '--hold-missing <limit>',
      'hold the changes of a company until you accept them, if at least this percentage and more than this number of its assets are missing, such as 50%,1',
    )
    .option(
      '--hold-replaced <limit>',
      'hold the changes of a company until you accept them, if more than this percentage and more than this number of its files are replaced or removed, such as 20%,10',
    )
    .option('--tag <key=value>', 'add or replace this tag, such as client=acme; may be repeated', collectTags)
    .option('--untag <key>', 'remove this tag; may be repeated', collect)
    .option('--force', 'accept companies, projects and types that are unknown')
    .action(withApi(api, set));
}
