// @module-tag slow
import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const s3 = inject('s3');
if (s3) {
  conformance(`a bucket of ${s3.name}, below a prefix`, () => newBucket(s3, { prefix: 'media/mirror' }));
  conformance(`a bucket of ${s3.name}, without checksums`, () => newBucket(s3, { checksums: 'none' }));
} else {
  test.skip('variants of S3 are not tested: no server is installed');
}
