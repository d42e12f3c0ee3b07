import { setTimeout as sleep } from 'node:timers/promises';
import type { S3Server } from '../test/support/services.ts';
import { newBucket, removeObjects } from './buckets.ts';
import type { Chart } from './chart.ts';
import type { Mirror } from './mirror.ts';
import { counted, ground, number, table, write } from './page.ts';
import { bareClient, type Cost, cost, middle, rclones, s3Flags } from './peers.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage, type Stage } from './stage.ts';

/**
 * One large file over HTTP into S3: through the whole mirror, by rclone in both of its ways, and by curl into curl, which is
 * about the minimum. They run in rotation, so that other load of the machine affects all of them. Then the same over
 * HTTPS. `node bench/one-large-file.ts [GIB] [ROUNDS]`.
 */
const gib = Number(process.argv[2] ?? 2);
const rounds = Number(process.argv[3] ?? 3);
const bytes = Math.round(gib * 2 ** 30);
let postgresVersion = '';
const withoutHashName = 'asset-mirror, no content hash';

interface Client {
  name: string;
  once: () => Promise<Cost>;
  /** Of each round. */
  costs: Cost[];
}

async function measure(tls: boolean): Promise<({ name: string } & Cost)[]> {
  await using stage = await newStage({
    source: { files: 1, bytes, newest: Date.now() - 86_400_000, stepMs: 1000 },
    redis: true,
    s3: 'versity',
    tls,
  });
  postgresVersion = stage.postgresVersion;
  await stage.migrate();
  const s3 = stage.s3!;
  await newBucket(s3, 'others');
  const clients = [...clientsOfMirror(stage, s3), ...(await otherClients(stage, s3))];

  for (let round = 1; round <= rounds; round++) {
    for (const { name, once, costs } of clients) {
      const found = await once();
      costs.push(found);
      // The stored bytes are few: a virtual machine gets new memory page by page, which would double the
      // time of the store.
      await removeObjects(s3, 'mirror', 'company-');
      await removeObjects(s3, 'others', '');
      console.log(`${name}: ${number(found.seconds, 1)} s, ${number(found.cpu, 2)} CPU s, ${number(found.rss)} MiB`);
    }
  }
  return clients.map(({ name, costs }) => ({ name, ...middle(costs) }));
}

/** The mirror, started twice: with its first files, and without a content hash. They run in this order. */
function clientsOfMirror(stage: Stage, s3: S3Server): Client[] {
  let user = 0;
  let mirror: Mirror;

  /** From the request to sync until the file is whole in the bucket. */
  async function mirrored(): Promise<Cost> {
    await stage.addConnections(++user, user);
    const before = cpuSeconds(mirror.pid);
    const began = performance.now();
    await stage.operator(`/connections/connection-${user}/resync`, { mode: 'incremental' });
    const seconds = ((await stage.mirrored(user)) - began) / 1000;
    return { seconds, cpu: cpuSeconds(mirror.pid) - before, rss: mebibytes(mirror.pid, 'VmHWM') };
  }

  async function justStarted(settings: Record<string, string> = {}): Promise<Cost> {
    mirror = await stage.mirror('all', { SYNC_INTERVAL: '30d', ...settings });
    // The work after a start is not measured.
    await sleep(1000);
    return mirrored();
  }

  async function last(): Promise<Cost> {
    const found = await mirrored();
    await stage.ended(mirror);
    return found;
  }

  /** The second file of a mirror that computes no content hash. */
  async function withoutHash(): Promise<Cost> {
    await justStarted({ CONTENT_HASH: 'none' });
    await removeObjects(s3, 'mirror', 'company-');
    return last();
  }

  return [
    { name: 'asset-mirror, just started', once: () => justStarted(), costs: [] },
    { name: 'asset-mirror, its second', once: mirrored, costs: [] },
    { name: 'asset-mirror, its third', once: mirrored, costs: [] },
    { name: 'asset-mirror, its fourth', once: last, costs: [] },
    { name: withoutHashName, once: withoutHash, costs: [] },
  ];
}

/** Clients that do the same without the mirror, into a bucket of their own. */
async function otherClients(stage: Stage, s3: S3Server): Promise<Client[]> {
  const clients: Client[] = [];
  const link = `${stage.origin}/files/file-0.bin`;
  for (const { name, path } of await rclones()) {
    const flags = `${s3Flags(s3)}${stage.ca ? ` --ca-cert ${stage.ca}` : ''}`;
    const from = `--http-url ${stage.origin}/files/`;
    const copy = `${path} --no-traverse --ignore-times copy :http: :s3:others ${from} ${flags}`;
    clients.push(
      { name: `${name}, copy`, once: () => cost(copy), costs: [] },
      { name: `${name}, copyurl`, once: () => cost(`${path} copyurl ${link} :s3:others/url.bin ${flags}`), costs: [] },
    );
  }
  const bare = bareClient({ s3, bucket: 'others', does: { link, bytes } }, stage.ca);
  clients.push({ name: 'two requests, in Node.js', once: () => cost(bare), costs: [] });
  const curl = `curl --silent --show-error --fail ${stage.ca ? `--cacert ${stage.ca}` : ''}`;
  const curls =
    `${curl} ${link} | ${curl} --upload-file - ` +
    `--header 'Transfer-Encoding:' --header 'Content-Length: ${bytes}' --header 'x-amz-content-sha256: UNSIGNED-PAYLOAD' ` +
    `--aws-sigv4 aws:amz:${s3.region}:s3 --user ${s3.accessKey}:${s3.secretKey} ${s3.endpoint}/others/curl.bin`;
  clients.push({ name: 'curl | curl', once: () => cost(curls), costs: [] });
  return clients;
}

type Rows = Awaited<ReturnType<typeof measure>>;
const speed = ({ seconds }: Cost) => bytes / 2 ** 20 / seconds;

function chartOf(title: string, rows: Rows): Chart {
  const bars = (title: string, of: (cost: Cost) => number, digits: number) => ({
    title,
    rows: rows.map((row) => ({
      label: row.name,
      value: of(row),
      text: number(of(row), digits),
      ours: row.name.startsWith('asset-mirror'),
    })),
  });
  return {
    kind: 'bars',
    title,
    panels: [
      bars('MiB a second', speed, 0),
      bars('Processor time of the client, seconds', ({ cpu }) => cpu, 1),
      bars('Peak memory of the client (RSS), MiB', ({ rss }) => rss, 0),
    ],
  };
}

function tableOf(rows: Rows): string {
  const ours = rows[1]!;
  return table(
    ['', 'seconds', 'MiB/s', 'CPU seconds', 'peak RSS, MiB', 'speed of the mirror ÷ theirs', 'its CPU ÷ theirs'],
    rows.map((row) => [
      row.name,
      number(row.seconds, 1),
      number(speed(row)),
      number(row.cpu, 2),
      number(row.rss, 1),
      row === ours ? '' : `${number(row.seconds / ours.seconds, 2)} ×`,
      row === ours ? '' : `${number(ours.cpu / row.cpu, 2)} ×`,
    ]),
  );
}

/** Compares the same work: rclone computes no content hash. */
function withoutHashOf(rows: Rows): string {
  const ours = rows.find(({ name }) => name === withoutHashName)!;
  const theirs = rows.filter(({ name }) => name.endsWith(', copy'));
  if (theirs.length === 0) return '';
  const ratios = theirs.map(
    ({ name, seconds, cpu }) =>
      `${number(seconds / ours.seconds, 2)} × the throughput and ${number(ours.cpu / cpu, 2)} × the CPU seconds of ${name}`,
  );
  return `Without its content hash, which rclone does not compute, the second file of a mirror has ${ratios.join('; ')}.`;
}

const plain = await measure(false);
const secure = await measure(true);
write('one-large-file', {
  title: 'One large file',
  charts: [
    chartOf(`One file of ${gib} GiB, HTTP to S3`, plain),
    chartOf(`One file of ${gib} GiB, HTTPS to S3 over HTTPS`, secure),
  ],
  text: `
One file of ${gib} GiB from HTTP to S3; servers and clients run on one machine. The figures are medians of ${counted(rounds, 'round')} in turns, and
the highest memory. The mirror asks for the asset, fetches it in parts, verifies each part and the whole, writes the record, and
keeps states and jobs. The time to start it is not included, but its first file is slower, because V8 compiles the code meanwhile.
A plain program in Node.js pipes one request into the other, and does nothing else. rclone has \`--expect-continue-timeout 0\`:
otherwise it waits before each part. The last two columns divide the throughput and the CPU seconds of the mirror's second file by
those of the row.

${tableOf(plain)}

${withoutHashOf(plain)}

The same over HTTPS, from the source and to the store:

${tableOf(secure)}

${withoutHashOf(secure)}
`,
  ground: await ground(['curl', 'redis', 'versitygw'], [postgresVersion]),
});
