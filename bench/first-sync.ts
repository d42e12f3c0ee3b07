import { setTimeout as sleep } from 'node:timers/promises';
import { ground, number, table, write } from './page.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * The first sync of a large library, and its effect on other connections. The bucket is a directory; transfers go on during the
 * listing. While one connection is listed for the first time, another one's new assets have to arrive.
 * `node bench/first-sync.ts [ASSETS]`.
 */
const ASSETS = Number(process.argv[2] ?? 1_000_000);
/** When the other connection gets a new asset, as parts of the listing. */
const UPLOADS = [0.1, 0.3, 0.5, 0.7, 0.9];

await using stage = await newStage({
  // Small files: this is about how many there are.
  library: { autoConsent: true, content: { synthetic: ASSETS, sizes: [20_000, 200_000] } },
  redis: true,
});
const { admin, db, operator } = stage;
const mirror = await stage.mirror();

const queue = await stage.queueKeys();
async function jobsOnQueue(): Promise<number> {
  const key = (list: string) => `${queue}:assets:${list}`;
  const [waiting, active, delayed] = await Promise.all([
    stage.redis!.llen(key('wait')),
    stage.redis!.llen(key('active')),
    stage.redis!.zcard(key('delayed')),
  ]);
  return waiting + active + delayed;
}

/** A new asset of the other connection, which syncs then: seconds until it is in the bucket. */
async function arrival(connectionId: string): Promise<number> {
  const started = performance.now();
  const { id } = await admin.addAsset({
    companyId: 'other',
    name: 'new.bin',
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    thumbnail: false,
    content: { text: 'something new' },
  });
  await operator(`/connections/${connectionId}/resync`, { mode: 'incremental' });
  for (;;) {
    const { rows } = await db.query("SELECT 1 FROM assets WHERE id = $1 AND state = 'mirrored'", [id]);
    if (rows.length > 0) return (performance.now() - started) / 1000;
    await sleep(20);
  }
}

interface Sample {
  seconds: number;
  seen: number;
  rss: number;
}

await admin.addUser({ id: 'other', name: 'Other', email: 'other@example.com' });
await admin.addCompany({ id: 'other', name: 'Other', userIds: ['other'] });
const other = await stage.connect('other');
// The work after a start is not measured.
await sleep(2000);

const databaseSize = async () =>
  (await db.query('SELECT pg_database_size(current_database())::float8 AS bytes')).rows[0].bytes as number;
const empty = await databaseSize();
const before = mebibytes(mirror.pid, 'VmRSS');
const cpuBefore = cpuSeconds(mirror.pid);
const serversBefore = stage.serversCpu();
const started = performance.now();
const first = await stage.connect();
const samples: Sample[] = [];
const arrivals: { at: number; pending: number; seconds: Promise<number> }[] = [];
const left = [...UPLOADS];
let mostJobs = 0;
for (;;) {
  const { rows } = await db.query(
    'SELECT seen, status, error FROM syncs WHERE connection_id = $1 ORDER BY requested_at LIMIT 1',
    [first],
  );
  const run = rows[0] ?? { seen: 0, status: 'waiting' };
  mostJobs = Math.max(mostJobs, await jobsOnQueue());
  const seconds = (performance.now() - started) / 1000;
  if (samples.length === 0 || seconds - samples.at(-1)!.seconds >= 1) {
    samples.push({ seconds, seen: run.seen, rss: mebibytes(mirror.pid, 'VmRSS') });
  }
  if (left.length > 0 && run.seen >= left[0]! * ASSETS) {
    left.shift();
    const pending = await db.query(
      "SELECT count(*)::int AS n FROM assets WHERE connection_id = $1 AND state <> 'mirrored'",
      [first],
    );
    arrivals.push({ at: run.seen, pending: pending.rows[0].n, seconds: arrival(other) });
  }
  if (run.status === 'done' || run.status === 'failed') {
    if (run.error) throw new Error(run.error);
    break;
  }
  await sleep(100);
}
const listed = (performance.now() - started) / 1000;
const cpu = cpuSeconds(mirror.pid) - cpuBefore;
const serversAfter = stage.serversCpu();
const spent = (server: keyof typeof serversAfter) => number(serversAfter[server] - serversBefore[server]);
const { rows: facts } = await db.query(
  `SELECT count(*)::int AS n, count(*) FILTER (WHERE state = 'mirrored')::int AS mirrored,
     pg_total_relation_size('assets')::float8 AS bytes, pg_relation_size('assets')::float8 AS heap,
     extract(epoch FROM min(mirrored_at) - max(connected_at))::float8 AS earliest,
     extract(epoch FROM (array_agg(mirrored_at ORDER BY upload_date DESC))[1] - max(connected_at))::float8 AS newest
   FROM assets JOIN connections ON connections.id = connection_id WHERE connection_id = $1`,
  [first],
);
const { n, mirrored, bytes, heap, earliest, newest } = facts[0];
const size = (await databaseSize()) - empty;
const times = await Promise.all(arrivals.map(({ seconds }) => seconds));
const quarters = [0, 1, 2, 3].map((q) => {
  const from = samples.filter(({ seen }) => seen >= (q * ASSETS) / 4 && seen <= ((q + 1) * ASSETS) / 4);
  const span = (from.at(-1)?.seconds ?? 0) - (from[0]?.seconds ?? 0);
  return {
    rss: Math.max(0, ...from.map(({ rss }) => rss)),
    perSecond: ((from.at(-1)?.seen ?? 0) - (from[0]?.seen ?? 0)) / Math.max(span, 0.001),
  };
});
const rows: [string, string][] = [
  ['Listed and recorded', `${number(n)} assets in ${number(listed)} s: ${number(n / listed)} a second`],
  ['… of it in each quarter, assets a second', quarters.map(({ perSecond }) => number(perSecond)).join(', ')],
  ['The first asset is in the bucket', `${number(earliest, 1)} s after connecting`],
  ['The newest asset is in the bucket', newest === null ? 'not yet' : `${number(newest, 1)} s after connecting`],
  ['Mirrored meanwhile, the first connection’s', number(mirrored)],
  [
    'Memory of the mirror (RSS), MiB',
    `${number(before)} before; most in each quarter ${quarters.map(({ rss }) => number(rss)).join(', ')}`,
  ],
  ['Processor time of the mirror', `${number(cpu)} s, ${number((cpu / n) * 1e6)} µs an asset, transfers included`],
  [
    '… of the servers',
    `PostgreSQL ${spent('postgres')} s, the library ${spent('source')} s, Redis ${spent('redis')} s`,
  ],
  [
    'Database',
    `${number(size / n)} bytes an asset in all; its table ${number(bytes / n)}, ${number(heap / n)} without indexes`,
  ],
  ['Most jobs of assets on the queue at once', String(mostJobs)],
  ...arrivals.map(({ at, pending }, i): [string, string] => [
    `Another connection’s new asset, after ${number(at)} were listed`,
    `in the bucket ${number(times[i]!, 1)} s after its upload, before ${number(pending)} of the first`,
  ]),
];
write('first-sync', {
  title: 'A first sync',
  charts: [
    {
      kind: 'bars',
      title: `The first sync of ${number(ASSETS)} assets`,
      panels: [
        {
          title: 'Assets listed and recorded a second',
          rows: quarters.map(({ perSecond }, q) => ({
            label: `quarter ${q + 1}`,
            value: perSecond,
            text: number(perSecond),
            ours: true,
          })),
        },
        {
          title: 'Memory of the mirror (RSS), MiB',
          rows: quarters.map(({ rss }, q) => ({
            label: `quarter ${q + 1}`,
            value: rss,
            text: number(rss),
            ours: true,
          })),
        },
        {
          title: 'Meanwhile: seconds until another connection’s new asset is in the bucket',
          rows: arrivals.map(({ at }, i) => ({
            label: `after ${number(at)}`,
            value: times[i]!,
            text: number(times[i]!, 2),
            ours: true,
          })),
        },
      ],
    },
  ],
  text: `
A library of ${number(ASSETS)} synthetic assets is connected and listed for the first time, 100 to a page, while its files are transferred.
Library, mirror, PostgreSQL and Redis run on one machine. The bucket is a directory. For each new asset of another connection, a
sync is requested; by itself, it would begin within SYNC_INTERVAL.

${table(['what', 'measured'], rows)}
`,
  ground: await ground(['redis'], [stage.postgresVersion]),
});
