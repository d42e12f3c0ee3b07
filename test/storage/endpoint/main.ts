import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Command, CommanderError, Option } from 'commander';
import { parseObjectLock } from '../../../src/config/parsers.ts';
import type { S3Options } from '../../../src/storage/s3/client.ts';
import { probeS3 } from '../../../src/storage/s3/probe/probe-s3.ts';

const command = new Command('npm run conformance:storage --')
  .description(
    `Runs the storage tests of this project against a bucket of any S3 server, after what \`doctor\` says of it.

The bucket must exist. Everything is written below a prefix of its own, which is emptied at the end. Credentials come from
the environment, as for the service (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE).

Exit code 0: all tests passed. 1: some failed. 2: wrong usage, or the bucket cannot be used.

Example:  npm run conformance:storage -- --endpoint http://localhost:9000 --bucket films --path-style`,
  )
  .requiredOption('--endpoint <url>', 'address of the S3 server')
  .requiredOption('--bucket <name>', 'an existing bucket')
  .option('--region <name>', 'region of the bucket', 'us-east-1')
  .option('--path-style', 'the bucket is in the path of the address, not in its host name', false)
  .addOption(
    new Option('--checksums <kind>', 'as S3_CHECKSUMS')
      .choices(['auto', 'sha256', 'crc32', 'md5-etag', 'none'])
      .default('auto'),
  )
  .addOption(
    new Option(
      '--object-lock <lock>',
      'as S3_OBJECT_LOCK, such as governance:1m: also tests locks. The bucket needs Object Lock, and keeps what is locked',
    ).argParser(parseObjectLock),
  )
  .option('--only <text>', 'only tests whose name contains this')
  .exitOverride();

process.exitCode = await main();

async function main(): Promise<number> {
  let given: { only?: string; pathStyle: boolean } & Pick<
    S3Options,
    'endpoint' | 'bucket' | 'region' | 'checksums' | 'objectLock'
  >;
  try {
    given = command.parse().opts();
  } catch (error) {
    return error instanceof CommanderError && error.exitCode === 0 ? 0 : 2;
  }
  const { only, pathStyle, ...rest } = given;
  const options = { ...rest, forcePathStyle: pathStyle, connections: 24, prefix: `conformance-${Date.now()}` };
  if (!(await printFindings(options))) return 2;

  const config = join(import.meta.dirname, 'vitest.config.ts');
  const filter = only === undefined ? [] : ['--testNamePattern', only.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')];
  const vitest = spawn('vitest', ['run', '--config', config, '--reporter', 'verbose', ...filter], {
    stdio: 'inherit',
    env: { ...process.env, STORAGE_CONFORMANCE: JSON.stringify(options) },
  });
  const [code] = await once(vitest, 'exit');
  return code === 0 ? 0 : 1;
}

/** Prints the findings of `doctor` about the bucket. False if it cannot be written to, so that no test can pass. */
async function printFindings(options: S3Options): Promise<boolean> {
  const marks = { ok: '✓', note: 'i', wrong: '✗' };
  let objects = false;
  for await (const { what, found, remedy, level } of probeS3(options)) {
    if (what === 'objects' && level === 'ok') objects = true;
    if (what === 'mirror id') continue;
    process.stdout.write(`${marks[level]} ${what.padEnd(12)} ${found}${remedy ? `; ${remedy}` : ''}\n`);
  }
  return objects;
}
