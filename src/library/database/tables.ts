import type { Company, Registration, User } from '../model.ts';

/** What the service knows of people, apps and what they were granted. Of secrets it has hashes, but for its own key. */
export type Tables = {
  apps: Registration & { secretHash: string };
  /** Who was removed is remembered, so that content that knows the person does not bring them back. */
  users: User & { passwordHash: string; removed: boolean };
  companies: Company;
  access: { userId: string; companyId: string; allowed: boolean };
  connections: Connection;
  codes: Code & { hash: string; connectionId: string | null };
  accessTokens: { hash: string; connectionId: string; expiresAt: number };
  /** A connection has one that works, and the one that it replaced. */
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
  scope: string;
  /** The companies picked on the consent page; null is every company the user can read now and later. */
  companies: string[] | null;
  since: number;
};

export type Code = {
  clientId: string;
  userId: string;
  redirectUri: string;
  challenge: string;
  companies: string[] | null;
  expiresAt: number;
};

/** A file of a folder as it was last seen: when it was uploaded, and what it said about itself. */
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

/** The columns that tell rows apart. */
export const KEYS: { [Table in TableName]: (keyof Tables[Table] & string)[] } = {
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
};

export const TABLES = Object.keys(KEYS) as TableName[];

export function keyOf<Table extends TableName>(table: Table, row: Tables[Table]): string {
  return KEYS[table].map((column) => row[column]).join('\0');
}
