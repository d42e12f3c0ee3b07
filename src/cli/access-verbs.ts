import { type Command, Option } from 'commander';
import { roles } from '../floor/roles.ts';
import { mostRows, wholeNumber } from './options.ts';
import { type NewVerb, type Verbs, verbsOf } from './verb.ts';
import { type AuditOptions, audit } from './verbs/audit.ts';
import { login, logout, whoami } from './verbs/login.ts';
import { endSession, listSessions } from './verbs/sessions.ts';
import { type AddTokenOptions, addToken, listTokens, revokeToken } from './verbs/tokens.ts';

type NewGroup = (name: string, summary: string) => Command;

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
  verb('whoami', 'show your name and role', 'asset-mirror whoami').action(async (options) =>
    whoami(await verbs.api(), options),
  );

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
    .action(async (options: AuditOptions) => audit(await verbs.api(), options));
}

function tokenVerbs(group: Command, { api }: Pick<Verbs, 'api'>): void {
  const verb = verbsOf(group);
  verb('list', 'List API tokens.', 'list').action(async (options) => listTokens(await api(), options));
  verb('add', 'Create an API token, and print it.', 'add ci --role viewer --days 30')
    .argument('<name>', 'a name that says what uses it')
    .addOption(new Option('--role <role>', 'what it may do').choices(roles).default('viewer'))
    .option('--days <n>', 'days until it expires, up to 365', wholeNumber(1, 365), 90)
    .action(async (name: string, options: AddTokenOptions) => addToken(await api(), name, options));
  verb('revoke', 'Revoke an API token. It stops working at once.', 'revoke ci')
    .argument('<token>', 'its name or id')
    .action(async (name: string, options) => revokeToken(await api(), name, options));
}

function sessionVerbs(group: Command, { api }: Pick<Verbs, 'api'>): void {
  const verb = verbsOf(group);
  verb('list', 'List your sessions; an admin sees those of all operators.', 'list').action(async (options) =>
    listSessions(await api(), options),
  );
  verb('end', 'End a session.', 'end SESSION')
    .argument('<session>', 'its id, from `asset-mirror sessions list`')
    .action(async (id: string, options) => endSession(await api(), id, options));
}
