import { setTimeout as sleep } from 'node:timers/promises';
import { ground, number, table, write } from './page.ts';
import { newStage } from './stage.ts';

/**
 * From an upload until it is in the bucket, while a backlog of the same connection is being mirrored: found by a sync
 * every few seconds, and by a sync that the uploader requests. `node bench/freshness.ts [SECONDS] [BACKLOG]`; SECONDS is how
 * long each of the two is measured.
 */
const seconds = Number(process.argv[2] ?? 45);
const backlog = Number(process.argv[3] ?? 30_000);
/** An upload each. */
const everyMs = 250;
const intervalMs = 5000;

await using stage = await newStage({
  library: { autoConsent: true, content: { synthetic: backlog, sizes: [20_000, 200_000] } },
  redis: true,
  s3: 'versity',
});
const { admin, db } = stage;
await stage.mirror('all', { SYNC_INTERVAL: `${intervalMs}ms` });
const connection = await stage.connect();
const one = async (query: string) => (await db.query(query)).rows[0].n as number;
const mirrored = () => one("SELECT count(*)::int AS n FROM assets WHERE state = 'mirrored'");
console.log('listing the backlog');
while ((await one("SELECT count(*)::int AS n FROM syncs WHERE status = 'done'")) === 0) await sleep(200);

interface Found {
  uploads: number;
  p50: number;
  p99: number;
  most: number;
  /** Files of the backlog that were mirrored per second. */
  rest: number;
  /** Files that were not mirrored at the end. */
  left: number;
}

async function measure(notified: boolean): Promise<Found> {
  const ids: string[] = [];
  const [before, began] = [await mirrored(), performance.now()];
  for (let due = began; performance.now() - began < seconds * 1000; due += everyMs) {
    const { id } = await admin.addAsset({
      companyId: 'cmp_synthetic_1',
      name: `fresh-${ids.length}.bin`,
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      thumbnail: false,
      content: { seed: `fresh ${ids.length}`, size: 100_000 },
    });
    ids.push(id);
    if (notified) await stage.operator(`/connections/${connection}/resync`, { mode: 'incremental' });
    await sleep(Math.max(0, due + everyMs - performance.now()));
  }
  const rest = ((await mirrored()) - before) / seconds;
  for (;;) {
    const { rows } = await db.query(
      `SELECT (extract(epoch FROM mirrored_at) * 1000 - upload_date)::float8 AS ms FROM assets
       WHERE id = ANY($1) AND state = 'mirrored' ORDER BY 1`,
      [ids],
    );
    if (rows.length === ids.length) {
      const at = (part: number) => rows[Math.min(rows.length - 1, Math.floor(part * rows.length))].ms / 1000;
      const left = await one("SELECT count(*)::int AS n FROM assets WHERE state = 'pending'");
      return { uploads: ids.length, p50: at(0.5), p99: at(0.99), most: at(1), rest: rest - ids.length / seconds, left };
    }
    await sleep(200);
  }
}

const found: [string, Found][] = [];
for (const [what, notified] of [
  [`found by a sync every ${intervalMs / 1000} s`, false],
  ['a sync is requested with each upload', true],
] as const) {
  found.push([what, await measure(notified)]);
  console.log(...found.at(-1)!);
}
const bars = (title: string, of: (row: Found) => number) => ({
  title,
  rows: found.map(([what, row]) => ({
    label: what.length > 32 ? what.replace('is asked for ', '') : what,
    value: of(row),
    text: number(of(row), 2),
    ours: true,
  })),
});
write('freshness', {
  title: 'Freshness',
  charts: [
    {
      kind: 'bars',
      title: 'From an upload until it is in the bucket, under load',
      panels: [bars('Median, seconds', ({ p50 }) => p50), bars('p99, seconds', ({ p99 }) => p99)],
    },
  ],
  text: `
For ${seconds} s, 100 KB are uploaded every ${everyMs} ms, while ${number(backlog)} older files of the same company are being mirrored into the Versity
gateway. All servers run on one machine. The time is from the library's upload date until the asset is recorded as mirrored.

${table(
  ['', 'uploads', 'p50 s', 'p99 s', 'max s', 'older files meanwhile, files/s', 'older files left'],
  found.map(([what, { uploads, p50, p99, most, rest, left }]) => [
    what,
    number(uploads),
    number(p50, 2),
    number(p99, 2),
    number(most, 2),
    number(rest),
    number(left),
  ]),
)}

${found.every(([, { left }]) => left > 0) ? '' : 'All older files were mirrored before the measurement ended: use a larger backlog.'}
`,
  ground: await ground(['redis', 'versitygw'], [stage.postgresVersion]),
});
