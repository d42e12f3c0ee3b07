// @module-tag slow
import { execFile } from 'node:child_process';
import { expect, inject, test } from 'vitest';
import { newBucket } from '../grounds.ts';

const server = inject('s3modern') ?? inject('s3');
if (!server) test.skip('S3 is not tested: no server is installed');

/** The output of `npm run conformance:storage`, and its exit code. */
async function run(bucket: string, ...more: string[]): Promise<{ code: number; output: string }> {
  const { endpoint, region } = server!;
  const options = ['--endpoint', endpoint, '--bucket', bucket, '--region', region, '--path-style', ...more];
  return new Promise((resolve) => {
    execFile('npm', ['run', '-s', 'conformance:storage', '--', ...options], (error, stdout) =>
      resolve({ code: error ? Number(error.code) : 0, output: stdout }),
    );
  });
}

test.runIf(server)(
  'the storage conformance tests run against a given endpoint, and leave its bucket as it was',
  async () => {
    const ground = await newBucket(server!);
    try {
      await ground.storage.put('there/before', 'stays');
      const { code, output } = await run(ground.bucket, '--only', 'memory does not grow');
      expect(output).toMatch(/✓ parts +of any size are accepted, and listed/);
      expect(output).toMatch(/✓.*memory does not grow/);
      expect(code).toBe(0);
      expect((await Array.fromAsync(ground.storage.list(''))).map(({ key }) => key)).toEqual(['there/before']);
    } finally {
      await ground.clear();
    }
  },
);

test.runIf(server)('the storage conformance tests do not start if the bucket cannot be used', async () => {
  const { code, output } = await run('no-such-bucket-here');
  expect(output).toMatch(/✗ list +the bucket does not exist; create the bucket/);
  expect(code).toBe(2);
});
