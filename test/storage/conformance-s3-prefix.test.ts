// @module-tag slow
import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const s3 = inject('s3');
if (s3) {
  conformance(`a bucket of ${s3.name}, below a prefix and without checksums`, () =>
    newBucket(s3, { prefix: 'media/mirror', checksums: 'none' }),
  );
} else {
  test.skip('S3 below a prefix is not tested: no server is installed');
}
