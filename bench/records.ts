import type pg from 'pg';
import { createSealer } from '../src/oauth/seal.ts';

export const encryptionKey = Buffer.alloc(32, 1);

export async function addConnections(
  db: pg.Pool,
  from: number,
  to: number,
  { highWaterMark, shared = false }: { highWaterMark: number | null; shared: boolean | undefined },
): Promise<void> {
  const sealer = createSealer([encryptionKey]);
  for (let first = from; first <= to; first += 5000) {
    const users = Array.from({ length: Math.min(5000, to - first + 1) }, (_, i) => first + i);
    const tokens = users.map((n) =>
      sealer.seal(`tokens of user-${n}`, JSON.stringify({ accessToken: `svca_${n}`, refreshToken: `svcr_${n}` })),
    );
    await db.query(
      `INSERT INTO connections (id, user_id, user_name, user_email, status, tokens, access_expires_at)
       SELECT 'connection-' || n, 'user-' || n, 'User ' || n, n || '@example.com', 'active', sealed, now() + interval '1 year'
       FROM unnest($1::int[], $2::text[]) AS made (n, sealed)`,
      [users, tokens],
    );
    await db.query(
      `INSERT INTO companies SELECT 'company-' || n, 'Company ' || n FROM unnest($1::int[]) AS n ON CONFLICT DO NOTHING`,
      [shared ? [1] : users],
    );
    await db.query(
      `INSERT INTO access (connection_id, company_id, high_water_mark)
       SELECT 'connection-' || n, 'company-' || CASE WHEN $3 THEN 1 ELSE n END, $2::bigint FROM unnest($1::int[]) AS n`,
      [users, highWaterMark, shared],
    );
  }
}
