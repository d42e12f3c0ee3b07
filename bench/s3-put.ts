import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { PutObjectCommand, UploadPartCommand } from '@aws-sdk/client-s3';
import { Meter, openBody } from '../src/storage/meter.ts';
import { agentsTo, connect } from '../src/storage/s3-client.ts';
import { sender } from '../src/storage/s3-send.ts';
import { counted, ground, number, table, write } from './page.ts';
import { median } from './peers.ts';
import { ended, startProgram } from './stage.ts';

/**
 * What a request that carries a body costs this process: by the AWS SDK, and as the mirror sends it, in turns, into a
 * store that does next to nothing. `node bench/s3-put.ts [PUTS] [ROUNDS]`.
 */
const puts = Number(process.argv[2] ?? 3000);
const parts = Math.ceil(puts / 60);
const rounds = Number(process.argv[3] ?? 5);
const atOnce = 16;
const tiny = Buffer.alloc(2000, 'asset-mirror ');
const small = Buffer.alloc(100_000, 'asset-mirror ');
const large = Buffer.alloc(2 ** 20, 'asset-mirror ');
const part = Buffer.alloc(16 * 2 ** 20, 'asset-mirror ');
const Bucket = 'puts';

await using stack = new AsyncDisposableStack();
const { child, said: endpoint } = await startProgram<string>('null-s3.ts', []);
stack.defer(() => ended(child));
process.env.AWS_ACCESS_KEY_ID = 'key';
process.env.AWS_SECRET_ACCESS_KEY = 'secret';

/** A download, as a body comes from one: pieces of 64 KiB, in a stream. */
function download(bytes: Buffer): Readable {
  let at = 0;
  return new Readable({
    highWaterMark: 1 << 16,
    read() {
      this.push(at < bytes.length ? bytes.subarray(at, at + (1 << 16)) : null);
      at += 1 << 16;
    },
  });
}
/** As the mirror sends it on: counted and summed on its way. */
function metered(bytes: Buffer): Meter {
  const meter = new Meter({ expected: bytes.length, md5: false, least: 8192 });
  openBody(download(bytes), undefined).flowInto(meter);
  return meter;
}

const agents = agentsTo({ connections: atOnce });
const client = connect({ endpoint, region: 'us-east-1', forcePathStyle: true }, agents);
stack.defer(() => client.destroy());
const send = sender(client, agents);
const sumOf = (bytes: Buffer) => crc32(bytes).toString(16).padStart(8, '0');
type Call = (by: 'sdk' | 'ours', i: number) => Promise<unknown>;
/** `abortSignal`, as every request of the mirror has one. */
function sent(by: 'sdk' | 'ours', input: Parameters<typeof send>[0], crc32: () => string) {
  const { signal: abortSignal } = new AbortController();
  if (by === 'ours') return send(input, { abortSignal, crc32 });
  const { PartNumber, UploadId } = input;
  return PartNumber === undefined
    ? client.send(new PutObjectCommand(input), { abortSignal })
    : client.send(new UploadPartCommand({ ...input, PartNumber, UploadId }), { abortSignal });
}
const of = (i: number, { length }: Buffer) => ({
  Bucket,
  Key: `object/${i % 100}`,
  ContentType: 'image/jpeg',
  ContentLength: length,
});
const calls: [string, number, Call][] = [
  [
    '100 KB, a stream',
    puts,
    (by, i) => {
      const Body = metered(small);
      return sent(by, { ...of(i, small), Body, ChecksumAlgorithm: 'CRC32' }, () => Body.checksums().crc32);
    },
  ],
  [
    '1 MiB, a stream',
    Math.ceil(puts / 10),
    (by, i) => {
      const Body = metered(large);
      return sent(by, { ...of(i, large), Body, ChecksumAlgorithm: 'CRC32' }, () => Body.checksums().crc32);
    },
  ],
  [
    '2 KB at hand',
    puts,
    (by, i) => sent(by, { ...of(i, tiny), Body: tiny, ChecksumAlgorithm: 'CRC32' }, () => sumOf(tiny)),
  ],
  [
    '16 MiB, a part',
    parts,
    (by, i) => {
      const Body = metered(part);
      const at = { Bucket, Key: 'parts', UploadId: '1', PartNumber: (i % 4) + 1, ContentLength: part.length };
      return sent(by, { ...at, Body, ChecksumAlgorithm: 'CRC32' }, () => Body.checksums().crc32);
    },
  ],
];

/** Processor time of each of `count` calls, user and system, in milliseconds. */
async function costOf(count: number, width: number, call: (i: number) => Promise<unknown>): Promise<number> {
  let next = 0;
  const before = process.cpuUsage();
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (next < count) await call(next++);
    }),
  );
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / count;
}

const found: { what: string; sdk: number; ours: number }[] = [];
for (const [what, count, call] of calls) {
  const costs = { sdk: [] as number[], ours: [] as number[] };
  // The first of each compiles; it does not count.
  for (let round = 0; round <= rounds; round++) {
    for (const by of ['sdk', 'ours'] as const) {
      const cost = await costOf(count, count === parts ? 4 : atOnce, (i) => call(by, i));
      if (round > 0) costs[by].push(cost);
    }
  }
  found.push({ what, sdk: median(costs.sdk), ours: median(costs.ours) });
}

write('s3-put', {
  title: 'Requests to S3',
  charts: [
    {
      kind: 'bars',
      title: 'A request that carries a body to S3: processor time of the client, ms',
      panels: found.map(({ what, sdk, ours }) => ({
        title: what,
        rows: [
          { label: 'as the mirror sends it', value: ours, text: number(ours, 2), ours: true },
          { label: 'AWS SDK', value: sdk, text: number(sdk, 2) },
        ],
      })),
    },
  ],
  text: `
Processor time of the client for each request, in milliseconds: by the AWS SDK, and as the mirror sends it, into a store that
does next to nothing and keeps its lines open. CRC-32 goes with each; a stream is counted and summed on its way. The median of
${counted(rounds, 'round')} of ${number(puts)} PUTs (${number(puts / 10)} of 1 MiB), ${atOnce} at once, and of ${number(parts)} parts, 4 at once, in turns.

${table(
  ['body', 'SDK', 'ours', 'ours / SDK'],
  found.map(({ what, sdk, ours }) => [what, number(sdk, 2), number(ours, 2), number(ours / sdk, 2)]),
)}
`,
  ground: await ground([]),
});
