import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/** The database of the mirror, of which `postmasterFile` has the process id. */
export function createRecords(url: string, postmasterFile: string) {
  /** Rows of the database, over a separate connection. */
  async function query<Row extends object>(sql: string, values: unknown[] = []): Promise<Row[]> {
    const client = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: 5000,
      query_timeout: 20_000,
    });
    client.on('error', () => {});
    try {
      await client.connect();
      return (await client.query(sql, values)).rows as Row[];
    } finally {
      await client.end().catch(() => {});
    }
  }

  const postmaster = () => readFile(postmasterFile, 'utf8');
  let endedPid: number | undefined;

  return {
    query,

    async endPostgres(signal: NodeJS.Signals): Promise<void> {
      endedPid = Number((await postmaster()).split('\n')[0]);
      process.kill(endedPid, signal);
    },
    async postgresIsBack(): Promise<void> {
      const until = Date.now() + 120_000;
      for (;;) {
        const pid = Number((await postmaster().catch(() => '')).split('\n')[0]);
        const up =
          pid &&
          pid !== endedPid &&
          (await query('SELECT 1').then(
            () => true,
            () => false,
          ));
        if (up) return;
        if (Date.now() > until) throw new Error('PostgreSQL does not come back');
        await sleep(100);
      }
    },
  };
}
