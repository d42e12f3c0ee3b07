import { ground, number, table, write } from './page.ts';
import { newStage } from './stage.ts';

/**
 * How long the operator API takes with many connections and assets in the records: one of them has a third of all assets, the
 * others share the rest. `node bench/operator-api.ts [CONNECTIONS] [ASSETS]`. With BENCH_DIR, the records stay there, and are
 * reused.
 */
const CONNECTIONS = Number(process.argv[2] ?? 10_000);
const ASSETS = Number(process.argv[3] ?? 1_000_000);
const RUNS = 60;
/** Slow requests are repeated less often. */
const patienceMs = 3000;
const LIMIT_MS = 100;

await using stage = await newStage({ directory: process.env.BENCH_DIR });
const { db, url } = stage;
await stage.migrate();
const loaded = Date.now();
if ((await db.query('SELECT 1 FROM connections LIMIT 1')).rowCount === 0) await fill();
await stage.mirror('web');

const one = async (query: string) => (await db.query(query)).rows[0];
const { rare } = await one(
  `SELECT id AS rare FROM assets WHERE connection_id = 'connection 7' AND state = 'mirrored' LIMIT 1`,
);
const last = (await one(`SELECT id FROM assets ORDER BY id OFFSET ${Math.max(0, ASSETS - 200)} LIMIT 1`)).id;
const late = Buffer.from(JSON.stringify(['id', last, last])).toString('base64url');
const { rows: deep } = await db.query(
  `SELECT (extract(epoch FROM connected_at) * 1000000)::bigint AS connected, id FROM connections ORDER BY connected_at, id OFFSET ${Math.max(0, CONNECTIONS - 150)} LIMIT 1`,
);
const farConnections = Buffer.from(JSON.stringify({ connected: Number(deep[0].connected), id: deep[0].id })).toString(
  'base64url',
);

const requests = [
  '/status',
  '/connections',
  '/connections?limit=250',
  `/connections?cursor=${farConnections}`,
  '/connections?status=disconnected',
  '/connections?q=person%2099',
  '/connections?q=nobody',
  '/connections/connection%201',
  '/connections/connection%207',
  '/assets',
  '/assets?limit=250',
  `/assets?cursor=${late}`,
  '/assets?connectionId=connection%201',
  '/assets?connectionId=connection%207',
  '/assets?companyId=company%207',
  '/assets?projectId=project%2042',
  '/assets?projectId=none',
  '/assets?state=mirrored',
  '/assets?state=failed',
  '/assets?state=transferring',
  '/assets?state=gone',
  '/assets?state=pending',
  '/assets?skipped=true',
  '/assets?type=videos',
  '/assets?type=brand%20assets',
  '/assets?connectionId=connection%201&state=failed',
  '/assets?connectionId=connection%201&state=failed&type=audio',
  '/assets?projectId=project%2042&state=unavailable',
  '/assets?type=brand%20assets&state=failed',
  '/assets?q=interview',
  '/assets?q=mp4',
  '/assets?q=cut%20777',
  '/assets?q=no%20such%20name',
  '/assets?q=zq',
  `/assets?q=${encodeURIComponent(rare)}`,
  '/assets?q=interview&connectionId=connection%207',
  '/assets?q=interview&state=failed',
  '/assets?sort=name',
  '/assets?sort=-size',
  '/assets?sort=-uploadDate&state=mirrored',
  '/assets?sort=-size&connectionId=connection%207',
  '/assets?sort=name&q=interview',
  '/assets?sort=-uploadDate&tag=tag%207',
  '/assets?tag=tag%207&tag=tag%2042',
  '/assets?tag=rare',
  '/assets?tag=none&sort=-size',
  '/assets?mimeType=image/*',
  '/assets?mimeType=image/tiff&sort=-uploadDate',
  '/assets?uploadedFrom=2023-11-13&uploadedBefore=2023-11-14&sort=size',
  '/assets?minSize=9990000&type=audio&state=failed',
  '/assets?minSize=9990001',
  '/asset-facets',
  '/asset-facets?state=mirrored&type=videos',
  '/asset-facets?tag=rare',
  '/asset-facets?tag=tag%207&mimeType=image/*',
  '/asset-facets?projectId=project%2042',
  '/asset-facets?q=interview',
  '/asset-facets?connectionId=connection%201&state=failed',
  '/asset-facets?connectionId=connection%207',
  `/assets/${encodeURIComponent(rare)}`,
  '/syncs',
  '/syncs?connectionId=connection%207',
  '/syncs?connectionId=connection%201&limit=250',
  '/events',
  '/events?limit=250',
  '/events?connectionId=connection%207',
  `/events?assetId=${encodeURIComponent(rare)}`,
  '/events?kind=operator.pauseConnection',
  '/events?kind=none',
  '/settings',
  '/history',
  '/history?range=week',
  '/upcoming',
];
const results: { path: string; p50: number; p99: number; bytes: number }[] = [];
for (const path of requests) {
  const times: number[] = [];
  let bytes = 0;
  // The first two only warm up.
  const started = performance.now();
  for (let run = -2; run < RUNS && (run < 3 || performance.now() - started < patienceMs); run++) {
    const began = performance.now();
    const response = await fetch(`${url}/api${path}`, {
      headers: { authorization: 'Bearer the-token-of-the-operators', accept: 'application/json' },
    });
    bytes = (await response.arrayBuffer()).byteLength;
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    if (run >= 0) times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  const at = (part: number) => times[Math.min(times.length - 1, Math.floor(part * times.length))]!;
  const result = {
    path: decodeURIComponent(path).replace(/cursor=[^&]*/, 'cursor=…'),
    p50: at(0.5),
    p99: at(0.99),
    bytes,
  };
  results.push(result);
  process.stdout.write(
    `${result.p99 > LIMIT_MS ? '✗' : '✓'} ${result.p50.toFixed(1).padStart(7)} ${result.p99.toFixed(1).padStart(7)} ms  ${result.path}\n`,
  );
}
const slow = results.filter(({ p99 }) => p99 > LIMIT_MS);
const slowest = results.toSorted((a, b) => b.p99 - a.p99).slice(0, 8);
write('operator-api', {
  title: 'The operator API with many records',
  charts: [
    {
      kind: 'bars',
      title: `The slowest answers, with ${number(ASSETS)} assets`,
      panels: [
        {
          title: 'p99, ms',
          rows: slowest.map(({ path, p99 }) => ({
            label: path.length > 34 ? `${path.slice(0, 33)}…` : path,
            value: p99,
            text: number(p99),
            ours: true,
          })),
        },
      ],
    },
  ],
  text: `
${number(CONNECTIONS)} connections, ${number(ASSETS)} assets (a third of them belong to one connection), ${number(ASSETS / 4)} syncs and as many events. Each
request is sent ${RUNS} times (less often if it is slow), one after another, over HTTP.

${slow.length === 0 ? `Every answer took less than ${LIMIT_MS} ms (p99).` : `More than ${LIMIT_MS} ms (p99): ${slow.map(({ path }) => `\`${path}\``).join(', ')}.`}

${table(
  ['request', 'p50 ms', 'p99 ms', 'KiB'],
  results.map(({ path, p50, p99, bytes }) => [
    `\`GET /api${path}\``,
    number(p50, 1),
    number(p99, 1),
    number(bytes / 1024, 1),
  ]),
)}
`,
  ground: await ground([], [stage.postgresVersion]),
});

/** Records as after years of use, written by SQL; no bucket has their files. */
async function fill(): Promise<void> {
  const say = (text: string) =>
    process.stdout.write(`${((Date.now() - loaded) / 1000).toFixed(0).padStart(4)} s  ${text}\n`);
  const steps: [string, string][] = [
    [
      'connections',
      `
      INSERT INTO connections (id, user_id, user_name, user_email, status, connected_at, last_sync_at)
      SELECT 'connection ' || i, 'user ' || i, 'Person ' || i, 'person' || i || '@example.com',
        CASE WHEN i % 50 = 0 THEN 'disconnected' WHEN i % 90 = 0 THEN 'paused' ELSE 'active' END,
        now() - (${CONNECTIONS} - i) * interval '1 minute', now() - (i % 300) * interval '1 second'
      FROM generate_series(1, ${CONNECTIONS}) AS i`,
    ],
    [
      'companies',
      `
      INSERT INTO companies SELECT 'company ' || i, 'Company ' || i FROM generate_series(1, ${CONNECTIONS}) AS i`,
    ],
    [
      'access',
      `
      INSERT INTO access (connection_id, company_id, high_water_mark)
      SELECT 'connection ' || i, 'company ' || i, 1700000000000 FROM generate_series(1, ${CONNECTIONS}) AS i`,
    ],
    [
      'assets',
      `
      INSERT INTO assets (id, connection_id, company_id, project_id, asset_type, name, size, upload_date, listed, detail, state,
        reason, next_at, media, bytes, record_key, mirrored_at, transcript_state, thumbnail_state, sidecar_files)
      SELECT id, 'connection ' || c, 'company ' || c, 'project ' || (i % 5000), type, name, size, uploaded, listed, listed, state,
        CASE WHEN state IN ('failed', 'unavailable') THEN '{"code": "error", "text": "the reason of it, in a sentence"}'::jsonb
          WHEN is_skipped THEN '{"code": "skipped_by_filter", "list": "exclude", "field": "type", "value": "videos"}'::jsonb END,
        CASE WHEN state IN ('pending', 'processing', 'transferring') AND NOT is_skipped OR state = 'mirrored' AND i % 400 = 0
          THEN now() + (i % 3600) * interval '1 second' END,
        CASE WHEN state IN ('mirrored', 'gone') THEN jsonb_build_object('key', 'company ' || c || '/p/' || id || '/' || name, 'bytes',
          size, 'variant', 'original', 'checksums', jsonb_build_object('crc32', 'AAAAAA=='), 'etag', '"x"', 'version', 'v') END,
        CASE WHEN state IN ('mirrored', 'gone') THEN size END, 'key', CASE WHEN state = 'mirrored' THEN now() - i * interval '10 seconds' END,
        'none', 'none', '{}'
      FROM (
        SELECT i, CASE WHEN i % 3 = 0 THEN 1 ELSE 1 + (i * 7919::bigint) % ${CONNECTIONS} END AS c,
          'ast_' || md5(i::text) AS id, (i % 1000) * 10000 AS size, 1700000000000 - i * 1000::bigint AS uploaded,
          (ARRAY['videos', 'selects', 'social', 'photography', 'graphics', 'audio', 'documents'])[1 + i % 7] AS t,
          CASE WHEN i % 20011 = 0 THEN 'brand assets'
            ELSE (ARRAY['videos', 'selects', 'social', 'photography', 'graphics', 'audio', 'documents'])[1 + i % 7] END AS type,
          (ARRAY['Interview', 'Drone pass', 'Scene', 'Behind the scenes', 'Social', 'Product'])[1 + i % 6] || ' cut ' || i % 9973 || '.mp4' AS name,
          jsonb_build_object('id', i, 'name', 'some name',
            'mimeType', (ARRAY['video/mp4', 'video/quicktime', 'image/jpeg', 'image/png', 'audio/mpeg'])[1 + i % 5],
            'tags', ARRAY['tag ' || i % 50, 'tag ' || i % 211, CASE WHEN i % 100003 = 0 THEN 'rare' ELSE 'usual' END],
            'projectName', 'A project', 'status', 'ready', 'more', repeat('x', 300)) AS listed,
          CASE WHEN i % 997 = 0 THEN 'failed' WHEN i % 991 = 0 THEN 'unavailable' WHEN i % 50021 = 0 THEN 'transferring'
            WHEN i % 211 = 0 THEN 'pending' WHEN i % 10007 = 0 THEN 'processing' WHEN i % 1511 = 0 THEN 'gone' ELSE 'mirrored' END AS state,
          i % 211 = 0 AND i % 5 = 0 AS is_skipped
        FROM generate_series(1, ${ASSETS}) AS i) AS made`,
    ],
    [
      'syncs',
      `
      INSERT INTO syncs (id, connection_id, mode, status, pages, seen, requested_at, started_at, finished_at)
      SELECT md5('sync' || i), 'connection ' || 1 + i % ${CONNECTIONS}, 'incremental', 'done', 2, 100,
        now() - i * interval '1 second', now() - i * interval '1 second', now() - i * interval '1 second'
      FROM generate_series(1, ${ASSETS / 4}) AS i`,
    ],
    [
      'events',
      `
      INSERT INTO events (kind, connection_id, asset_id, at, data)
      SELECT CASE WHEN i % 9001 = 0 THEN 'operator.pauseConnection' ELSE 'asset.failed' END, 'connection ' || 1 + i % ${CONNECTIONS},
        CASE WHEN i % 9001 <> 0 THEN 'ast_' || md5((i % ${ASSETS})::text) END, now() - (${ASSETS / 4} - i) * interval '1 second', '{"reason": "of it"}'
      FROM generate_series(1, ${ASSETS / 4}) AS i`,
    ],
    ['statistics', 'VACUUM ANALYZE'],
  ];
  for (const [what, statement] of steps) {
    await db.query(statement);
    say(what);
  }
  await stage.foldCounts();
  await db.query('VACUUM ANALYZE');
}
