import type { ApiClient } from '../client.ts';
import { agoShort, print, printJson, table } from '../output.ts';

export async function listSessions(api: ApiClient, { json }: { json?: boolean }): Promise<void> {
  const found = await api.sessions();
  if (json) return printJson(found);
  if (found.sessions.length === 0) return print('Nobody is signed in.');
  const columns = [
    { title: 'SESSION' },
    { title: 'NAME', least: 12 },
    { title: 'ROLE' },
    { title: 'METHOD', spare: 2 },
    { title: 'FROM', least: 10 },
    { title: 'LAST USED' },
    { title: 'ENDS' },
    { title: 'BROWSER', least: 10, spare: 1 },
  ];
  const rows = found.sessions.map((session) => [
    session.id,
    session.isThis ? `${session.name} (this one)` : session.name,
    session.role,
    session.method,
    session.address,
    agoShort(session.lastUsedAt),
    agoShort(session.endsAt),
    session.userAgent ?? '',
  ]);
  print(table(columns, rows));
}

export async function endSession(api: ApiClient, id: string, { json }: { json?: boolean }): Promise<void> {
  const ended = await api.endSession(id);
  if (json) printJson(ended);
  else print(`The session ${id} has ended.`);
}
