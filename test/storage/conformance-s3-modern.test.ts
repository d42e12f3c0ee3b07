import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const modern = inject('s3modern');
if (modern) conformance(`a bucket of ${modern.name}`, () => newBucket(modern));
else test.skip('S3 with checksums of whole objects is not tested: versitygw is not installed');
