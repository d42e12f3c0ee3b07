import { execFile, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cpuSeconds, machine, mebibytes, newBucket, newStage, report } from './stage.ts';

const run = promisify(execFile);

/**
 * Small files over HTTP into S3: through the whole mirror (list, detail, download, PUT, record, states), and by rclone, which
 * copies them from a plain index. `node bench/small-files.ts [FILES] [BYTES]` writes bench/results/small-files.md.
 */
const files = Number(process.argv[2] ?? 3000);
const bytes = Number(process.argv[3] ?? 100_000);

await using stage = await newStage({
  library: { content: { synthetic: files, sizes: [bytes, bytes] } },
  redis: true,
  s3: true,
});
const mirror = await stage.mirror('all', { MIRROR_THUMBNAILS: 'false', MIRROR_TRANSCRIPTS: 'false' });
const before = cpuSeconds(mirror.pid);
const began = performance.now();
await stage.connect();
const ours = {
  seconds: ((await stage.mirrored(files)) - began) / 1000,
  cpu: cpuSeconds(mirror.pid) - before,
  rss: mebibytes(mirror.pid, 'VmHWM'),
};
await stage.ended(mirror);

const source = fork(join(import.meta.dirname, 'files-server.ts'), [String(files), String(bytes)]);
const [port] = await once(source, 'message');
await newBucket(stage.s3!, 'rclone');
const { accessKey, secretKey, endpoint, region } = stage.s3!;
const { stderr } = await run(
  'bash',
  [
    '-c',
    `TIMEFORMAT='%R %U %S'; time rclone --config /dev/null --transfers 16 copy :http: :s3:rclone --http-url http://127.0.0.1:${port}/ --s3-provider Other --s3-endpoint ${endpoint} --s3-region ${region} --s3-access-key-id ${accessKey} --s3-secret-access-key ${secretKey} --s3-force-path-style`,
  ],
  { env: { PATH: process.env.PATH } },
);
source.disconnect();
const [real, user, system] = stderr.trim().split('\n').at(-1)!.split(' ').map(Number) as [number, number, number];
const theirs = { seconds: real, cpu: user + system };

report(
  'small-files',
  `# Small files

${files.toLocaleString('en')} files of ${bytes.toLocaleString('en')} bytes, HTTP to S3 (versitygw), all on one machine (${machine()}). The mirror lists, asks
for each asset, downloads it, stores it and its record, and keeps its states in PostgreSQL and its jobs in Redis; rclone
copies the bytes. Made by \`npm run bench:small-files\`.

| | files/s | CPU ms a file |
| --- | --- | --- |
| asset-mirror | ${(files / ours.seconds).toFixed(0)} | ${((ours.cpu / files) * 1000).toFixed(2)} |
| rclone | ${(files / theirs.seconds).toFixed(0)} | ${((theirs.cpu / files) * 1000).toFixed(2)} |

Peak RSS of the mirror: ${ours.rss.toFixed(0)} MiB.
`,
);
process.exit();
