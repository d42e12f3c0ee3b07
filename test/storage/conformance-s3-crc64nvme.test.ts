// @module-tag slow
import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const modern = inject('s3modern');
if (modern) {
  conformance(`a bucket of ${modern.name}, with crc64nvme`, () => newBucket(modern, { checksums: 'crc64nvme' }));
} else {
  test.skip('S3 with crc64nvme is not tested: versitygw is not installed');
}
