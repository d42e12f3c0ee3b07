import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket, newDirectory } from './grounds.ts';

conformance('a directory', newDirectory);

const s3 = inject('s3');
if (s3) {
  conformance(`a bucket of ${s3.name}`, () => newBucket(s3));
  conformance(`a bucket of ${s3.name}, below a prefix`, () => newBucket(s3, { prefix: 'media/mirror' }));
  conformance(`a bucket of ${s3.name}, without checksums`, () => newBucket(s3, { checksums: 'none' }));
} else {
  test.skip('S3: no server is installed');
}
