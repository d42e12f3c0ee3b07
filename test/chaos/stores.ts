import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import { freePort } from '../support/ports.ts';
import { answers, type Programs } from './programs.ts';
import { startProxy } from './proxy.ts';

const run = promisify(execFile);
/** A tmpfs takes memory only for the bytes in use. */
const diskBytes = 2 ** 30;

/** An S3 server with an empty bucket, behind a proxy. */
export async function openS3({ directory, program, opening }: Programs, random: () => number) {
  const [port, accessKey, secretKey] = [await freePort(), 'testaccesskey', randomBytes(16).toString('hex')];
  const [objects, facts] = [join(directory, 'objects'), join(directory, 'facts')];
  await Promise.all([mkdir(objects), mkdir(facts)]);
  await program({
    name: 's3',
    command: [
      'versitygw',
      '--port',
      `127.0.0.1:${port}`,
      '--region',
      'us-east-1',
      '--quiet',
      'posix',
      '--sidecar',
      facts,
      objects,
    ],
    env: { ROOT_ACCESS_KEY: accessKey, ROOT_SECRET_KEY: secretKey },
    isReady: () => answers(port),
  }).start();
  const proxy = await startProxy({ port: await freePort(), target: port, random });
  opening.defer(() => proxy.close());
  const client = new S3Client({
    endpoint: `http://127.0.0.1:${port}`,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: accessKey, secretAccessKey: secretKey },
    // The bytes are compared with the expected ones. An object that is being replaced has two checksums.
    responseChecksumValidation: 'WHEN_REQUIRED',
  });
  opening.defer(() => client.destroy());
  await client.send(new CreateBucketCommand({ Bucket: 'mirror' }));
  return {
    proxy,
    client,
    environment: {
      STORAGE_URL: 's3://mirror/copy',
      S3_ENDPOINT: proxy.url,
      S3_REGION: 'us-east-1',
      S3_FORCE_PATH_STYLE: 'true',
      AWS_ACCESS_KEY_ID: accessKey,
      AWS_SECRET_ACCESS_KEY: secretKey,
    } as Record<string, string>,
  };
}

/** A directory for the copy; with `hasDisk`, on a disk of its own. */
export async function openDisk({ directory, opening }: Programs, hasDisk: boolean) {
  const path = join(directory, 'disk');
  await mkdir(path);
  if (hasDisk) {
    await run('mount', ['-t', 'tmpfs', '-o', `size=${diskBytes}`, 'none', path]);
    opening.defer(async () => void (await run('umount', ['-l', path])));
  }
  return { proxy: undefined, client: undefined, environment: { STORAGE_URL: `file://${path}/mirror` } };
}

/** Fills the disk. Returns what empties it. */
export async function fillDisk(directory: string) {
  const size = (bytes: number) => run('mount', ['-o', `remount,size=${bytes}`, join(directory, 'disk')]);
  for (let tries = 0; ; tries++) {
    const { blocks, bfree, bsize } = await statfs(join(directory, 'disk'));
    // Another process may be writing.
    const done = await size((blocks - bfree) * bsize + 65_536).catch((error) => {
      if (tries === 20) throw error;
    });
    if (done) return () => size(diskBytes);
  }
}
