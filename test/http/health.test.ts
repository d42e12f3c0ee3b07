import { rename } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';
import { asking, problem } from './asking.ts';

let stage: Stage;
beforeAll(async () => {
  stage = await newStage();
});
afterAll(async () => {
  await stage?.close();
});

const ask = asking(() => stage);

describe('readiness', () => {
  const ready = async (query = '') => {
    const response = await fetch(`${stage.ground.publicUrl}/readyz${query}`);
    return { status: response.status, body: (await response.json()) as { checks: Record<string, string> } };
  };

  test('/readyz fails while the bucket is away, except with ?without=bucket', { tags: 'slow' }, async () => {
    expect(await ready()).toEqual({
      status: 200,
      body: { status: 'ready', checks: { database: 'ok', queue: 'ok', bucket: 'ok' } },
    });
    const directory = `${stage.ground.environment.DATA_DIR}/mirror`;
    await rename(directory, `${directory}-away`);
    try {
      const away = await until('it to be seen', async () => {
        const answer = await ready();
        return answer.status === 503 && answer;
      });
      expect(away.body).toMatchObject({ status: 'not ready', checks: { database: 'ok', queue: 'ok' } });
      expect(away.body.checks.bucket).toMatch(/directory|mirror|ENOENT/);
      expect(await ready('?without=bucket')).toEqual({ status: 200, body: { ...away.body, status: 'ready' } });
      expect((await ready('?without=queue')).status).toBe(503);
      // Probes of web processes use ?without=bucket.
      expect((await ask('POST', '/api/connect-links', {})).status).toBe(201);
      expect((await ask('GET', '/api/status')).status).toBe(200);
    } finally {
      await rename(`${directory}-away`, directory);
    }
    await until('it to be back', async () => (await ready()).status === 200);
  });

  test('/readyz fails while the database is away, and /healthz does not', { tags: 'slow' }, async () => {
    const { pathname } = new URL(stage.ground.environment.DATABASE_URL!);
    const name = pathname.slice(1);
    const server = new pg.Client({ connectionString: inject('postgres') });
    await server.connect();
    try {
      await server.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS false`);
      await server.query('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1', [name]);
      // The queue has connections of its own, which may end a moment before those of the database.
      const away = await until('it to be seen', async () => {
        const answer = await ready();
        return answer.status === 503 && answer.body.checks.database !== 'ok' && answer;
      });
      expect(away.body.checks.database).toMatch(/not currently accepting connections|terminat/);
      expect((await fetch(`${stage.ground.publicUrl}/healthz`)).status).toBe(200);
      expect(await ask('GET', '/api/connections')).toMatchObject(problem(500, 'internal_error'));
    } finally {
      await server.query(`ALTER DATABASE ${name} ALLOW_CONNECTIONS true`);
      await server.end();
    }
    await until('it to be back', async () => (await ready()).status === 200);
    expect((await ask('GET', '/api/connections')).status).toBe(200);
  });
});
