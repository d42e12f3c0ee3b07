import { heldText } from '../../floor/held-changes.ts';
import { type Tags, tagsText } from '../../floor/tags.ts';
import { formatBytes, formatDuration } from '../../floor/units.ts';
import type { Asked, ConnectionSummary } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { confirmed, requireTerminal } from '../confirm.ts';
import { findConnection, findOptional } from '../find-connection.ts';
import { ago, agoShort, type Cell, harmless, number, paint, print, printJson, table } from '../output.ts';

const colours = { good: 'green', go: 'cyan', warn: 'yellow', bad: 'red' } as const;

/** The condition of a connection, such as `up to date`. */
const conditionCell = ({ condition }: ConnectionSummary) => ({
  text: condition.text.toLowerCase(),
  style: colours[condition.tone],
});

/** `40/300` */
function mirroredOf({ counts }: ConnectionSummary): string {
  return `${number(counts.byState.mirrored)}/${number(counts.expected)}`;
}

/** The interval of its syncs, and why it is short, such as `30s, active`. */
const everyOf = ({ polling: { interval, reason } }: ConnectionSummary) =>
  `${formatDuration(interval)}${reason === 'active' ? ', active' : ''}`;

export function connectionTable(connections: ConnectionSummary[]): string {
  const areTagged = connections.some(({ tags }) => Object.keys(tags).length > 0);
  const rows = connections.map((connection): Cell[] => {
    const { failed } = connection.counts.byState;
    return [
      connection.id,
      connection.user.email || connection.user.name,
      conditionCell(connection),
      connection.companies.map(({ name }) => name).join(', '),
      ...(areTagged ? [tagsText(connection.tags)] : []),
      mirroredOf(connection),
      formatBytes(connection.bytes),
      failed > 0 ? { text: number(failed), style: 'red' } : '0',
      agoShort(connection.lastSyncAt),
      agoShort(connection.nextSyncAt),
      connection.nextSyncAt === null ? '' : everyOf(connection),
    ];
  });
  return table(
    [
      // The e-mail names it, too.
      { title: 'CONNECTION', spare: 1 },
      { title: 'USER', least: 12 },
      { title: 'STATE' },
      { title: 'COMPANIES', least: 12, spare: 5 },
      ...(areTagged ? [{ title: 'TAGS', least: 12, spare: 7 }] : []),
      { title: 'MIRRORED', right: true },
      { title: 'BYTES', right: true, spare: 3 },
      { title: 'FAILED', right: true },
      { title: 'LAST SYNC', spare: 2 },
      { title: 'NEXT', spare: 4 },
      { title: 'EVERY', spare: 6 },
    ],
    rows,
  );
}

/** Why connections wait, one line each. */
export function troubles(connections: ConnectionSummary[]): string[] {
  return connections.flatMap(({ id, status, adaptiveLimit, companies, condition, lastError }) => {
    const { delayedUntil } = adaptiveLimit;
    return [
      ...(condition.code === 'all_skipped'
        ? [`${paint('yellow', '!')} ${id}: the filters skip all assets; see \`asset-mirror set ${id}\``]
        : []),
      ...companies.flatMap((company) =>
        company.held.map((changes) => {
          const held = { ...changes, connectionId: id, companyId: company.id };
          return `${paint('red', '!')} ${id}: ${heldText(held, harmless(company.name))}`;
        }),
      ),
      ...(status === 'active' && delayedUntil
        ? [`${paint('yellow', '~')} ${id}: waiting, continues ${ago(delayedUntil)}`]
        : []),
      ...(lastError ? [`${paint('yellow', '!')} ${id}: ${harmless(lastError)}`] : []),
    ];
  });
}

/** Prints a signed link with which a user connects, or reconnects one connection. */
export async function connectLink(
  api: ApiClient,
  options: { connection?: string; returnUrl?: string; tag?: Tags; json?: boolean },
): Promise<void> {
  const connectionId = await findOptional(api, options.connection);
  const link = await api.createConnectLink({ connectionId, returnUrl: options.returnUrl, tags: options.tag });
  if (options.json) return printJson(link);
  print(link.url);
  if (process.stdout.isTTY)
    print(`\nSend it to the user; it works until ${link.expiresAt.slice(0, 16).replace('T', ' ')} UTC.`);
}

export async function connections(
  api: ApiClient,
  options: { status?: Asked<'connections'>['status']; search?: string; tag?: string[]; json?: boolean },
): Promise<void> {
  const found = await api.allConnections({ status: options.status, q: options.search, tag: options.tag });
  if (options.json) return printJson({ connections: found });
  if (found.length === 0) {
    return print(
      options.status || options.search || options.tag
        ? 'No connection matches.'
        : 'No connections. Create a link for a user with `asset-mirror connect-link`.',
    );
  }
  print(connectionTable(found));
  const lines = troubles(found);
  if (lines.length > 0) print(`\n${lines.join('\n')}`);
}

export async function pause(api: ApiClient, given: string, options: { json?: boolean }): Promise<void> {
  const id = await findConnection(api, given);
  const connection = await api.pause(id);
  if (options.json) return printJson(connection);
  print(`${nameOf(connection)} is paused. Continue with \`asset-mirror resume ${id}\`.`);
}

export async function resume(api: ApiClient, given: string, options: { json?: boolean }): Promise<void> {
  const id = await findConnection(api, given);
  const connection = await api.resume(id);
  if (options.json) return printJson(connection);
  print(`${nameOf(connection)} is active again. A sync looks for new assets.`);
}

/** Ends a connection, after a confirmation. */
export async function disconnect(
  api: ApiClient,
  given: string,
  options: { yes?: boolean; json?: boolean },
): Promise<void> {
  const id = await findConnection(api, given);
  if (!options.yes) {
    const connection = await api.connection(id);
    const what = `this ends the connection of ${nameOf(connection)}`;
    requireTerminal(what, options);
    print(
      `${paint('bold', nameOf(connection))}: ${mirroredOf(connection)} mirrored, ${formatBytes(connection.bytes)}.`,
    );
    print('The user must connect again to continue. The bucket keeps its files.');
    if (!(await confirmed('Disconnect it?'))) {
      print('Cancelled; nothing was changed.');
      return;
    }
  }
  const ended = await api.disconnect(id);
  if (options.json) return printJson(ended);
  print(
    ended.revoked === null
      ? `${nameOf(ended)} was disconnected already.`
      : `${nameOf(ended)} is disconnected. Create a link to reconnect with \`asset-mirror connect-link --connection ${id}\`.`,
  );
  if (ended.revoked === false) {
    print(
      paint(
        'yellow',
        'The grant could not be revoked at the library. The user can remove it there: profile page, Connected Apps.',
      ),
    );
  }
}

const nameOf = ({ id, user }: ConnectionSummary) => harmless(user.email || user.name || id);
