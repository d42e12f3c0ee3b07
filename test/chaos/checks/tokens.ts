import { users } from '../plan.ts';
import type { World } from '../world.ts';
import type { Finding } from './finding.ts';
import { clock, type Happened, overlaps } from './history.ts';

export async function tokens(world: World, history: Happened[]): Promise<Finding> {
  const problems: string[] = [];
  const live = await world.library.admin((admin) => admin.connections());
  const connections = await world.query<{ user_id: string; status: string; last_error: string | null }>(
    'SELECT * FROM connections',
  );
  for (const { id } of users) {
    const tokens = live.find(({ userId }) => userId === id)?.refreshTokens;
    if (tokens !== 1) problems.push(`${id} has ${tokens} live refresh tokens at the library`);
    const connection = connections.find(({ user_id }) => user_id === id);
    if (connection?.status !== 'active') problems.push(`the connection of ${id} is ${connection?.status}`);
  }
  if (connections.length !== users.length)
    problems.push(`there are ${connections.length} connections of ${users.length} users`);

  const ended = await world.query<{ user_id: string; at: Date; data: { reason: string } }>(
    `SELECT c.user_id, e.at, e.data FROM events e JOIN connections c ON c.id = e.connection_id WHERE e.kind = 'connection.disconnected'`,
  );
  for (const { user_id, at, data } of ended) {
    const time = at.getTime();
    const byUser = world.endedByUs.some(({ user, at }) => user === user_id && at <= time);
    // The answer with the new token never came, or came to a process that died before it was saved.
    const lost = world.libraryProxy.passed.some(
      (entry) => entry.path.endsWith('/oauth/token') && entry.at < time && (!entry.whole || entry.status === 0),
    );
    const died = overlaps(
      history.filter((fault) => /kill|postgres/.test(fault.name)),
      time - 60_000,
      time,
    );
    if (!byUser && !lost && !died)
      problems.push(`the connection of ${user_id} ended at ${clock(time)} without a cause: ${data.reason}`);
  }
  return {
    what: 'each connection has exactly one valid refresh token',
    seen: `${connections.length} connections, with ${ended.length} reconnects`,
    problems,
  };
}
