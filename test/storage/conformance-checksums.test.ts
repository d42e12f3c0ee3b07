// @module-tag slow
import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const modern = inject('s3modern');
if (modern) {
  for (const checksums of ['crc32', 'crc64nvme'] as const) {
    conformance(`a bucket of ${modern.name}, with S3_CHECKSUMS=${checksums}`, () => newBucket(modern, { checksums }));
  }
} else {
  test.skip('the CRC checksums of S3 are not tested: versitygw is not installed');
}
