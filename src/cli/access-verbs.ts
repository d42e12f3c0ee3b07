import { type Command, Option } from 'commander';
import { roles } from '../floor/roles.ts';
import { mostRows, wholeNumber } from './options.ts';
import { type NewGroup, type NewVerb, type Verbs, verbsOf, withApi } from './verb.ts';
import { audit } from './verbs/audit.ts';
import { login, logout, whoami } from './verbs/login.ts';
import { endSession, listSessions } from './verbs/sessions.ts';
import { addToken, listTokens, revokeToken } from './verbs/tokens.ts';

/** The verbs about operators: who they are, what they may do, and what they did. */
export function accessVerbs(verb: NewVerb, group: NewGroup, verbs: Pick<Verbs, 'api' | 'credentials'>): void {
  verb(
    'login',
    'sign in at the OpenID provider, with a code that you enter in a browser',
    'asset-mirror login',
    'The other verbs then use this session, unless ASSET_MIRROR_TOKEN or ADMIN_TOKEN is set.',
  ).action(async (options) => login(await verbs.api(), await verbs.credentials(), options));
  verb('logout', 'sign out: end the session of `asset-mirror login`', 'asset-mirror logout').action(async (options) =>
    logout(await verbs.credentials(), options),
  );
  verb('whoami', 'show your name and role', 'asset-mirror whoami').action(withApi(verbs.api, whoami));

  tokenVerbs(group('tokens', 'manage API tokens for programs'), verbs);
  sessionVerbs(group('sessions', 'list and end sessions of operators'), verbs);

  verb('audit', 'list what operators did and tried to do, newest first', [
    'asset-mirror audit --search ada --since 2026-10-01',
    'asset-mirror audit --all --json > audit.jsonl',
  ])
    .option('--search <text>', 'part of a name, an address or an id')
    .option('--action <name>', 'an operation of the API, such as pauseConnection; or signIn, signOut')
    .option('--refused', 'only refused actions')
    .option('--since <date>', 'from this day (UTC) or this time with its zone, such as 2026-01-31T12:00:00Z')
    .option('--until <date>', 'before this day or time')
    .option('--limit <n>', `maximum rows, up to ${mostRows}`, wholeNumber(1, mostRows), 50)
    .option('--all', 'all rows; with --json, one per line')
    .action(withApi(verbs.api, audit));
}

function tokenVerbs(group: Command, { api }: Pick<Verbs, 'api'>): void {
  const verb = verbsOf(group);
  verb('list', 'List API tokens.', 'list').action(withApi(api, listTokens));
  verb('add', 'Create an API token, and print it.', 'add ci --role viewer --days 30')
    .argument('<name>', 'a name that says what uses it')
    .addOption(new Option('--role <role>', 'what it may do').choices(roles).default('viewer'))
    .option('--days <n>', 'days until it expires, up to 365', wholeNumber(1, 365), 90)
    .action(withApi(api, addToken));
  verb('revoke', 'Revoke an API token. It stops working at once.', 'revoke ci')
    .argument('<token>', 'its name or id')
    .action(withApi(api, revokeToken));
}

function sessionVerbs(group: Command, { api }: Pick<Verbs, 'api'>): void {
  const verb = verbsOf(group);
  verb('list', 'List your sessions; an admin sees those of all operators.', 'list').action(withApi(api, listSessions));
  verb('end', 'End a session.', 'end SESSION')
    .argument('<session>', 'its id, from `asset-mirror sessions list`')
    .action(withApi(api, endSession));
}
