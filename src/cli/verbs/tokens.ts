import type { Asked } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { agoShort, paint, print, printError, printJson, table } from '../output.ts';

interface AddTokenOptions {
  role: Asked<'createToken'>['role'];
  days: number;
  json?: boolean;
}

export async function listTokens(api: ApiClient, { json }: { json?: boolean }): Promise<void> {
  const found = await api.tokens();
  if (json) return printJson(found);
  if (found.tokens.length === 0) return print('No API token. Create one with `asset-mirror tokens add NAME`.');
  const columns = [
    { title: 'NAME', least: 12 },
    { title: 'ROLE' },
    { title: 'BEGINS WITH', spare: 2 },
    { title: 'LAST USED' },
    { title: 'EXPIRES' },
    { title: 'CREATED BY', least: 12, spare: 1 },
  ];
  const rows = found.tokens.map(({ name, role, beginning, lastUsedAt, expiresAt, createdBy }) => [
    name,
    role,
    beginning,
    agoShort(lastUsedAt),
    Date.parse(expiresAt) > Date.now()
      ? agoShort(expiresAt)
      : { text: `expired ${agoShort(expiresAt)}`, style: 'red' as const },
    createdBy,
  ]);
  print(table(columns, rows));
}

/** Prints the token alone on standard output, so that a script can keep it. */
export async function addToken(api: ApiClient, name: string, { role, days, json }: AddTokenOptions): Promise<void> {
  const created = await api.createToken({ name, role, expiresInDays: days });
  if (json) return printJson(created);
  printError(
    `Created the token ${name} with the role ${role}. It expires at ${created.expiresAt} and is shown only now:`,
  );
  print(paint('bold', created.token));
}

export async function revokeToken(api: ApiClient, idOrName: string, { json }: { json?: boolean }): Promise<void> {
  const revoked = await api.revokeToken(idOrName);
  if (json) printJson(revoked);
  else print(`The token ${revoked.name} no longer works.`);
}
