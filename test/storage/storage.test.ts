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
  test.skip('S3 is not tested: no server is installed');
}

const modern = inject('s3modern');
if (modern) {
  for (const checksums of ['auto', 'crc32', 'crc64nvme'] as const) {
    conformance(`a bucket of ${modern.name}, with S3_CHECKSUMS=${checksums}`, () => newBucket(modern, { checksums }));
  }
} else {
  test.skip('S3 with checksums of whole objects is not tested: versitygw is not installed');
}
