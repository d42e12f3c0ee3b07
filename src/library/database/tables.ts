import type { Company, Registration, User } from '../model.ts';

/** What is stored. Tokens, passwords and client secrets are stored as hashes. */
export type Tables = {
  apps: Registration & { secretHash: string };
  /** Removed users stay, so that the content does not add them again. */
  users: User & { passwordHash: string; removed: boolean };
  companies: Company;
  access: { userId: string; companyId: string; allowed: boolean };
  connections: Connection;
  codes: Code & { hash: string; connectionId: string | null };
  accessTokens: { hash: string; connectionId: string; expiresAt: number };
  /** Two per connection: the current one, and the one that it replaced. */
  refreshTokens: { hash: string; connectionId: string; used: boolean; replaces: string | null };
  sessions: { hash: string; userId: string; expiresAt: number };
  files: File;
  settings: { name: string; value: string };
};

/** A user's grant to an app (section 3.2). */
export type Connection = {
  id: string;
  userId: string;
  clientId: string;
  /** The companies chosen on the consent page. Null: all companies of the user, also later ones. */
  companies: string[] | null;
  since: number;
};

/** An authorization code. */
export type Code = {
  clientId: string;
  userId: string;
  redirectUri: string;
  challenge: string;
  companies: string[] | null;
  expiresAt: number;
};

/** A file of a folder, as it was last seen. */
export type File = {
  companyId: string;
  path: string;
  size: number;
  mtimeMs: number;
  uploadDate: number;
  duration: number | null;
  width: number | null;
  height: number | null;
};

export type TableName = keyof Tables;

/** The primary key of each table. */
export const KEYS = {
  apps: ['clientId'],
  users: ['id'],
  companies: ['id'],
  access: ['userId', 'companyId'],
  connections: ['id'],
  codes: ['hash'],
  accessTokens: ['hash'],
  refreshTokens: ['hash'],
  sessions: ['hash'],
  files: ['companyId', 'path'],
  settings: ['name'],
} as const satisfies { [Table in TableName]: (keyof Tables[Table])[] };

type Key<Table extends TableName> = Record<(typeof KEYS)[Table][number], string>;

/** The key of a row as one text. */
export function keyOf<Table extends TableName>(table: Table, row: Key<Table>): string {
  const values = KEYS[table].map((column) => row[column as keyof Key<Table>]);
  return values.length === 1 ? values[0]! : JSON.stringify(values);
}
