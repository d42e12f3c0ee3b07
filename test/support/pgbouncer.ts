import { execFile, spawn } from 'node:child_process';
import { chmod, copyFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { createLog } from '../../src/floor/log.ts';
import { startEmbeddedPostgres } from '../../src/store/embedded/embedded.ts';
import type { Certificates } from './certificates.ts';
import { freePort } from './ports.ts';
import { until } from './until.ts';

const run = promisify(execFile);

/** A PostgreSQL with TLS, and PgBouncer in front of it, which assigns connections by transaction. Both require TLS. */
export async function newPooledPostgres({ ca, cert, key }: Certificates) {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-pooled-'));
  await chmod(directory, 0o755);
  const postgres = await startEmbeddedPostgres({
    directory: join(directory, 'database'),
    log: createLog({ level: 'silent', pretty: false }),
  });
  const own = new pg.Client({ connectionString: postgres.url });
  await own.connect();
  // PostgreSQL and PgBouncer refuse a key that others may read, and neither runs as root.
  const isRoot = process.getuid?.() === 0;
  const keyFor = async (place: string) => {
    const file = join(place, 'tls.key');
    await copyFile(key, file);
    await chmod(file, 0o600);
    if (isRoot) await run('chown', ['postgres', file]);
    return file;
  };
  await keyFor(join(directory, 'database', 'postgres'));
  for (const setting of [`ssl_cert_file = '${cert}'`, "ssl_key_file = 'tls.key'"]) {
    await own.query(`ALTER SYSTEM SET ${setting}`);
  }
  await own.query('ALTER SYSTEM SET ssl = on');
  await own.query('SELECT pg_reload_conf()');

  const { port: behind, password } = new URL(postgres.url);
  const port = await freePort();
  const users = join(directory, 'users.txt');
  await writeFile(users, `"postgres" "${decodeURIComponent(password)}"\n`);
  const settings = join(directory, 'pgbouncer.ini');
  await writeFile(
    settings,
    `[databases]
postgres = host=localhost port=${behind}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${users}
pool_mode = transaction
default_pool_size = 5
client_tls_sslmode = require
client_tls_cert_file = ${cert}
client_tls_key_file = ${await keyFor(directory)}
server_tls_sslmode = verify-full
server_tls_ca_file = ${ca}
`,
  );
  const child = spawn('pgbouncer', [...(isRoot ? ['-u', 'postgres'] : []), settings], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (chunk) => (said += chunk));
  const ended = new Promise((resolve) => child.once('exit', resolve));
  await until('PgBouncer to listen', () => said.includes('process up'));
  return {
    url: `postgres://postgres:${password}@localhost:${port}/postgres?sslmode=verify-full`,
    said: () => said,
    /** Connections of the mirror that reach the server, and whether all of them are encrypted. */
    async connections(): Promise<{ count: number; encrypted: boolean }> {
      const { rows } = await own.query(`SELECT count(*)::int, coalesce(bool_and(ssl), false) AS encrypted
        FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'asset-mirror%'`);
      return rows[0];
    },
    async stop(): Promise<void> {
      child.kill('SIGINT');
      await ended;
      await own.end();
      await postgres.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
