// @module-tag slow
import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const modern = inject('s3modern');
if (modern) {
  conformance(`a bucket of ${modern.name}, with crc32`, () => newBucket(modern, { checksums: 'crc32' }));
} else {
  test.skip('S3 with crc32 is not tested: versitygw is not installed');
}
