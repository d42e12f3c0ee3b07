import { type Command, Option } from 'commander';
import { webhookKinds } from '../floor/webhook-kinds.ts';
import { collect, mostRows, nonEmptyText, wholeNumber } from './options.ts';
import { type Verbs, verbsOf, withApi } from './verb.ts';
import * as webhooks from './verbs/webhooks.ts';

/** The verbs that manage webhook endpoints. */
export function webhookVerbs(group: Command, api: Verbs['api']): void {
  const verb = verbsOf(group);
  const endpoint = 'its id, from `asset-mirror webhooks list`';

  verb('list', 'List the webhook endpoints.', 'list').action(withApi(api, webhooks.list));

  withValues(
    verb(
      'add',
      'Add a webhook endpoint, and print its secret. An event is sent if it matches all filters.',
      'add https://hooks.example.com/mirror --kind asset.mirrored --company COMPANY',
    ),
  )
    .argument('<url>', 'its address')
    .action(withApi(api, webhooks.add));

  withValues(
    verb('set', 'Change a webhook endpoint. New filters replace all old ones.', 'set ENDPOINT --rotate-secret'),
  )
    .argument('<endpoint>', endpoint)
    .option('--url <url>', 'its new address', nonEmptyText)
    .option('--no-filters', 'remove all filters')
    .option('--enable', 'resume sending, also of events that still wait')
    .addOption(new Option('--disable', 'send nothing; events that happen meanwhile are never sent').conflicts('enable'))
    .option('--rotate-secret', 'make and print a new secret; for 24 hours, the old one signs the messages, too')
    .action(withApi(api, webhooks.set));

  verb('remove', 'Remove a webhook endpoint, the messages that wait for it, and its log.', 'remove ENDPOINT')
    .argument('<endpoint>', endpoint)
    .action(withApi(api, webhooks.remove));

  verb(
    'deliveries',
    'List the messages of a webhook endpoint and their last attempts.',
    'deliveries ENDPOINT --state failed',
  )
    .argument('<endpoint>', endpoint)
    .addOption(
      new Option('--state <state>', 'only messages in this state; failed: given up after 3 days').choices([
        'waiting',
        'delivered',
        'failed',
      ]),
    )
    .option('--limit <n>', `maximum rows, up to ${mostRows}`, wholeNumber(1, mostRows), 50)
    .action(withApi(api, webhooks.deliveries));

  verb('redeliver', 'Send messages again, with the same ids.', 'redeliver ENDPOINT --failed-since 2026-01-31T12:00:00Z')
    .argument('<endpoint>', endpoint)
    .argument('[message]', 'its id, from `asset-mirror webhooks deliveries`')
    .option('--failed-since <time>', 'all failed messages of events since this time, such as 2026-01-31 (UTC)')
    .action(withApi(api, webhooks.redeliver));

  verb('test', 'Send a test message to a webhook endpoint. Exits with 1 if it is not accepted.', 'test ENDPOINT')
    .argument('[endpoint]', `${endpoint} (default: the one in WEBHOOK_URL)`)
    .action(withApi(api, webhooks.test));
}

const withValues = (verb: Command): Command =>
  verb
    .addOption(
      new Option('--kind <kind>', 'send events of this kind; may be repeated').choices(webhookKinds).argParser(collect),
    )
    .option('--connection <name>', 'only events of this connection; may be repeated', collect)
    .option('--company <id>', 'only events of this company; may be repeated', collect)
    .option('--project <id>', 'only events of this project; may be repeated', collect)
    .option('--type <type>', 'only events of this asset type; may be repeated', collect)
    .option('--description <text>', 'a note for operators');
