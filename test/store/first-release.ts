import type pg from 'pg';

/**
 * What the first release wrote, word for word as it did, with its schema (`0001_start`): a processor of that release may be at
 * work while a newer one brings the schema up to date.
 */
export function firstRelease(client: pg.Client) {
  // biome-ignore lint/suspicious/noExplicitAny: rows of many tables
  const ask = async (text: string, values: unknown[] = []): Promise<any[]> => (await client.query(text, values)).rows;

  return {
    async connects(id: string, userId: string, companyId: string): Promise<void> {
      await ask(
        `INSERT INTO connections (id, user_id, user_name, user_email, status, tokens, access_expires_at)
         VALUES ($1, $2, $3, $4, 'active', $5, now() + interval '1 hour')`,
        [id, userId, `Name of ${userId}`, `${userId}@example.com`, `tokens of ${userId}`],
      );
      await ask('INSERT INTO companies (id, name) VALUES ($1, $1) ON CONFLICT DO NOTHING', [companyId]);
      await ask('INSERT INTO access (connection_id, company_id, mark) VALUES ($1, $2, 1704067200000)', [id, companyId]);
      await ask(`INSERT INTO events (kind, connection_id, data) VALUES ('connection.connected', $1, '{}')`, [id]);
    },

    /** Asks for a run, and takes it. */
    async syncs(connectionId: string, syncId: string): Promise<void> {
      await ask(
        `INSERT INTO syncs (id, connection_id, mode, scope, status)
         SELECT $1, id, 'incremental', '{}'::jsonb, 'waiting' FROM connections
         WHERE id = $2 AND status <> 'disconnected' FOR SHARE
         ON CONFLICT (connection_id, (CASE WHEN scope = '{}' THEN '' ELSE mode END), md5(scope::text)) WHERE status = 'waiting'
         DO UPDATE SET mode = CASE WHEN excluded.mode = 'full' THEN 'full' ELSE syncs.mode END
         RETURNING id`,
        [syncId, connectionId],
      );
      await ask(`UPDATE syncs SET status = 'running', started_at = coalesce(started_at, now()) WHERE id = $1`, [
        syncId,
      ]);
    },

    /** A page of a listing: what is new is due. */
    async lists(connectionId: string, companyId: string, ids: string[]): Promise<void> {
      const rows = ids.map((id) => ({
        id,
        name: `${id}.mp4`,
        asset_type: 'videos',
        size: 1000,
        upload_date: 1704067200000,
      }));
      const page = `jsonb_to_recordset($1::jsonb)
        AS r (id text, project_id text, asset_type text, name text, size bigint, upload_date bigint)`;
      await ask(
        `INSERT INTO assets (id, connection_id, company_id, project_id, asset_type, name, size, upload_date, listed, state, reason, next_at)
         SELECT r.id, $2, $3, r.project_id, r.asset_type, r.name, r.size, r.upload_date, '{}'::jsonb, 'pending', NULL, now()
         FROM ${page} ORDER BY r.id ON CONFLICT (id) DO NOTHING`,
        [JSON.stringify(rows), connectionId, companyId],
      );
    },

    /** Another name, and another version. */
    async listsAgain(id: string, name: string): Promise<void> {
      await ask(
        `UPDATE assets AS a SET name = $2, revision = a.revision + 1, state = 'pending', reason = NULL, next_at = now(), attempts = 0
         WHERE a.id = $1`,
        [id, name],
      );
    },

    async ends(syncId: string): Promise<void> {
      await ask(
        `UPDATE syncs SET status = 'done', error = NULL, position = '{}', finished_at = now() WHERE id = $1 AND status = 'running'`,
        [syncId],
      );
    },

    /** Puts an asset on the queue and takes the next turn at it. */
    async takes(id: string): Promise<number> {
      await ask('UPDATE assets SET queued_at = now() WHERE id = $1', [id]);
      const [row] = await ask(
        `UPDATE assets SET turn = assets.turn + 1, turn_until = now() + 20000 * interval '1 ms'
         FROM connections c
         WHERE assets.id = $1 AND c.id = assets.connection_id AND c.status = 'active'
           AND assets.queued_at IS NOT NULL AND assets.next_at IS NOT NULL
           AND (assets.turn_until IS NULL OR assets.turn_until < now())
         RETURNING assets.turn`,
        [id],
      );
      await ask(`UPDATE assets SET state = 'transferring' WHERE id = $1 AND turn = $2`, [id, row.turn]);
      return row.turn;
    },

    async beginsUpload(id: string, turn: number): Promise<void> {
      await ask('UPDATE assets SET upload = $3 WHERE id = $1 AND turn = $2', [
        id,
        turn,
        JSON.stringify({ id: 'upload', key: `acme/_/${id}/${id}.mp4` }),
      ]);
    },

    /** How many parts it stored: none when the turn is another's. */
    async storesPart(id: string, turn: number, number: number): Promise<number> {
      const { rowCount } = await client.query(
        `INSERT INTO upload_parts (asset_id, number, bytes, etag, crc32)
         SELECT id, $3, $4, $5, $6 FROM assets WHERE id = $1 AND turn = $2 AND upload IS NOT NULL FOR SHARE
         ON CONFLICT (asset_id, number) DO UPDATE
           SET bytes = excluded.bytes, etag = excluded.etag, crc32 = excluded.crc32`,
        [id, turn, number, 500, `etag ${number}`, '00000000'],
      );
      return rowCount ?? 0;
    },

    async mirrors(id: string, turn: number): Promise<void> {
      const key = `acme/_/${id}/${id}.mp4`;
      const media = { key, bytes: 1000, etag: 'e', variant: 'original', checksums: { crc32: '00000000' } };
      await ask('UPDATE assets SET media = $3, bytes = 1000 WHERE id = $1 AND turn = $2', [
        id,
        turn,
        JSON.stringify(media),
      ]);
      await ask(
        `UPDATE assets SET queued_at = NULL, turn_until = NULL, state = 'mirrored', next_at = NULL, attempts = 0, reason = NULL,
           processing_since = NULL, record_key = $3, detail = '{}', mirrored_at = coalesce(mirrored_at, now()), upload = NULL
         WHERE id = $1 AND turn = $2`,
        [id, turn, `${key}.asset.json`],
      );
    },

    async fails(id: string, turn: number, reason: string): Promise<void> {
      await ask(
        `UPDATE assets SET queued_at = NULL, turn_until = NULL, state = 'failed', reason = $3, next_at = NULL, attempts = attempts + 1
         WHERE id = $1 AND turn = $2`,
        [id, turn, reason],
      );
      await ask(`INSERT INTO events (kind, asset_id, data) VALUES ('asset.failed', $1, $2)`, [
        id,
        JSON.stringify({ reason }),
      ]);
    },

    /** Saves the pair of tokens that takes the place of `version`; 0: another process was first. */
    async rotates(connectionId: string, version: number, tokens: string): Promise<number> {
      const { rowCount } = await client.query(
        `UPDATE connections SET tokens = $3, token_version = token_version + 1, refresh_owner = NULL, refresh_until = NULL
         WHERE id = $1 AND token_version = $2`,
        [connectionId, version, tokens],
      );
      return rowCount ?? 0;
    },
  };
}
