import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

/** A new database on the test server, with the mirror's schema or without, and how to drop it. */
export async function newDatabase({ empty = false } = {}): Promise<{ url: string; drop(): Promise<void> }> {
  const server = inject('postgres');
  const name = `test_${randomUUID().replaceAll('-', '')}`;
  await ask(server, `CREATE DATABASE ${name}${empty ? '' : ` TEMPLATE ${inject('template')}`}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  return { url: url.href, drop: () => drop(server, name) };
}

/**
 * A pool ends before its connections are closed, and their late errors have no listener: so the server waits up to 5 seconds
 * for them. Only connections that stay open (of a killed process) are closed by force.
 */
async function drop(server: string, name: string): Promise<void> {
  const inUse = '55006';
  await ask(server, `DROP DATABASE IF EXISTS ${name}`).catch((error) => {
    if (error.code !== inUse) throw error;
    return ask(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  });
}

export async function ask(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}
