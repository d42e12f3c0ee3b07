import { inject, test } from 'vitest';
import { conformance } from './conformance.ts';
import { newBucket } from './grounds.ts';

const s3 = inject('s3');
if (s3) conformance(`a bucket of ${s3.name}`, () => newBucket(s3));
else test.skip('S3 is not tested: no server is installed');
