import { type NewVerb, type Verbs, withApi } from './verb.ts';
import { erase, erasures } from './verbs/erase.ts';
import { hold, release, removals } from './verbs/removals.ts';

/** The verbs that remove objects from the bucket on purpose, and protect them from that. */
export function removalVerbs(verb: NewVerb, api: Verbs['api']): void {
  verb(
    'removals',
    'list what GONE_RETENTION removes from the bucket in the next 7 days',
    'asset-mirror removals',
  ).action(withApi(api, removals));

  verb(
    'hold',
    'protect assets, a project or a connection from removal',
    ['asset-mirror hold ASSET --reason "case 42"', 'asset-mirror hold'],
    'Neither GONE_RETENTION nor an erasure removes what is protected. Without arguments, lists what is protected.',
  )
    .argument('[asset...]', 'their ids, from `asset-mirror assets`')
    .option('--project <id>', 'all assets of this project')
    .option(
      '--connection <name>',
      'all assets of the companies that this connection can read, or could read before it ended',
    )
    .option('--reason <text>', 'why they are protected; the list shows it')
    .action(withApi(api, hold));

  verb('release', 'end a protection from removal', 'asset-mirror release ASSET')
    .argument('[asset...]', 'their ids, from `asset-mirror hold`')
    .option('--project <id>', 'the protection of this project')
    .option('--connection <name>', 'the protection of this connection')
    .action(withApi(api, release));

  verb(
    'erase',
    'remove assets from bucket and database for good, and never mirror them again',
    'asset-mirror erase ASSET --reason "requested by the owner" --certificate erasure.json',
    'Shows what it would remove, and asks for confirmation. Exits with 1 if something remains because it is protected or locked.',
  )
    .argument('[asset...]', 'their ids, from `asset-mirror assets`')
    .option('--project <id>', 'all assets of this project')
    .option('--company <id>', 'all assets of this company')
    .option('--connection <name>', 'all assets of this connection')
    .requiredOption('--reason <text>', 'why they are erased (required); the certificate shows it')
    .option('--certificate <file>', 'write the certificate (JSON) to this new file instead of printing it')
    .option('--yes', 'do not ask for confirmation')
    .action(withApi(api, erase));

  verb('erasures', 'list erasures, or print the certificate of one', 'asset-mirror erasures ERASURE')
    .argument('[erasure]', 'its id (default: list all)')
    .option('--certificate <file>', 'write the certificate (JSON) to this new file instead of printing it')
    .action(withApi(api, erasures));
}
