import { Option } from 'commander';
import { withAssetFilters } from './asset-filters.ts';
import { collect, connectionName, mostRows, wholeNumber } from './options.ts';
import { type NewVerb, type Verbs, withApi } from './verb.ts';
import { assets } from './verbs/assets.ts';
import { connections } from './verbs/connections.ts';
import { events } from './verbs/events.ts';
import { explain } from './verbs/explain.ts';
import { plan } from './verbs/plan.ts';
import { status } from './verbs/status.ts';
import { syncs } from './verbs/syncs.ts';
import { versions } from './verbs/versions.ts';

const rows = `maximum rows, up to ${mostRows}`;

/** The verbs that show something and change nothing. */
export function inspectVerbs(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'status',
    "show totals, each connection's progress, the transfer rate and the time left",
    'asset-mirror status --watch',
  )
    .option('--watch', 'refresh until interrupted; with --json, one line per second')
    .action(withApi(api, status));

  verb('connections', 'list connections', 'asset-mirror connections --status disconnected')
    .addOption(
      new Option('--status <status>', 'only connections with this status').choices([
        'active',
        'paused',
        'disconnected',
      ]),
    )
    .option('--search <text>', "part of the user's name or e-mail, or of a company name")
    .option('--tag <key=value>', 'only connections with this tag; may be repeated: all must match', collect)
    .action(withApi(api, connections));

  assetsVerb(verb, api);

  verb(
    'explain',
    'show where one asset is or why it is not mirrored, what you can do, and its history',
    'asset-mirror explain ASSET',
  )
    .argument('<asset>', 'its id, from `asset-mirror assets`')
    .action(withApi(api, explain));

  verb(
    'versions',
    'list the current file of an asset, and the superseded ones that are kept',
    'asset-mirror versions ASSET',
    'Get one back with `asset-mirror restore ASSET --version VERSION --to DIRECTORY`.',
  )
    .argument('<asset>', 'its id, from `asset-mirror assets`')
    .action(withApi(api, versions));

  verb(
    'syncs',
    'list syncs, newest first: assets seen, new, changed and gone, and errors',
    'asset-mirror syncs --connection CONNECTION',
  )
    .option('--connection <name>', 'of this connection')
    .option('--limit <n>', rows, wholeNumber(1, mostRows), 20)
    .action(withApi(api, syncs));

  verb(
    'events',
    'list events, newest last, including what operators did',
    'asset-mirror events --kind connection.disconnected',
  )
    .option('--connection <name>', 'of this connection')
    .option('--asset <id>', 'of this asset')
    .option('--kind <kind>', 'of this kind, such as asset.failed or operator.pauseConnection')
    .option('--limit <n>', `maximum past events, up to ${mostRows}`, wholeNumber(1, mostRows), 20)
    .option('--follow', 'continue with new events until interrupted; with --json, one per line')
    .action(withApi(api, events));

  planVerb(verb, api);
}

function assetsVerb(verb: NewVerb, api: Verbs['api']): void {
  withAssetFilters(
    verb(
      'assets',
      'list assets, with the reason if one is not mirrored',
      ['asset-mirror assets --search interview --type videos', 'asset-mirror assets --tag acme --sort=-size --counts'],
      'All conditions must match.',
    ),
  )
    .option('--said <words>', 'with these spoken words, such as \'budget "next year" -draft\'')
    .addOption(
      new Option('--sort <by>', 'order; a leading - means descending, as in --sort=-size')
        .choices(['id', '-id', 'name', '-name', 'uploadDate', '-uploadDate', 'size', '-size'])
        .default('id'),
    )
    .option('--counts', 'print counts by state, type, project, tag and so on instead of the list')
    .option('--limit <n>', rows, wholeNumber(1, mostRows), 50)
    .option('--all', 'all rows; with --json, one per line')
    .action(withApi(api, assets));
}

function planVerb(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'plan',
    'list the library and show what a full sync would transfer, without changing anything',
    ['asset-mirror plan CONNECTION', 'asset-mirror plan --scrub'],
    'Takes as long as a full sync takes to list the library. Ctrl-C also ends it in the service.',
  )
    .argument('[connection]', `${connectionName} (default: all active connections)`)
    .option(
      '--scrub',
      'show the requests and bytes that the scrub (regular reading of all files) needs; does not list the library',
    )
    .action(withApi(api, plan));
}
