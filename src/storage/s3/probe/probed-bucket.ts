import { AbortMultipartUploadCommand, CreateMultipartUploadCommand } from '@aws-sdk/client-s3';
import { type Diagnosis, diagnosisOf, reasonOf } from '../../../floor/errors.ts';
import type { PutOptions } from '../../storage.ts';
import { Bucket } from '../bucket.ts';
import { probeKey, removeProbes, type uploadChecksums } from '../checksum-support.ts';
import type { S3Options } from '../client.ts';
import { classify } from '../errors.ts';

/** The bucket that a probe examines: what is known of it so far, and the objects that must be removed again. */
export class ProbedBucket extends Bucket {
  readonly probe = this.at(probeKey);
  /** Versions of the probe's object. */
  readonly written = new Set<string | undefined>();
  readonly uploads = new Set<string>();
  /** Whether versions cannot be removed, because they are locked or it is denied. Undefined until that is known. */
  versionsStay: boolean | undefined;
  /** The checksum that the store compares, and may require of each PUT. */
  checksum: (typeof uploadChecksums)[keyof typeof uploadChecksums] | undefined;
  /** How far our clock is behind that of the store. */
  behindMs: number | undefined;

  constructor(options: S3Options) {
    super(options);
    this.#watchClock();
  }

  /** An error as a finding and its remedy. */
  explain(error: unknown): Pick<Diagnosis, 'found'> & Partial<Diagnosis> {
    const reason = classify(error, this.name);
    return diagnosisOf(reason) ?? { found: reasonOf(reason).replace(`${this.name}: `, '') };
  }

  async beginUpload(put: Pick<PutOptions, 'media'> = {}): Promise<string> {
    const { UploadId } = await this.client.send(
      new CreateMultipartUploadCommand({ ...this.target(probeKey, put), ...this.checksum }),
    );
    this.uploads.add(UploadId!);
    return UploadId!;
  }

  /** Removes what the probe has written. Returns the number of versions that stay. */
  async cleanUp(): Promise<number> {
    for (const UploadId of this.uploads) {
      await this.client.send(new AbortMultipartUploadCommand({ ...this.probe, UploadId })).catch(() => {});
    }
    this.uploads.clear();
    const left = await removeProbes(this.client, this.probe, this.written);
    this.written.clear();
    return left;
  }

  #watchClock(): void {
    this.client.middlewareStack.add(
      (next) => async (call) => {
        const sent = Date.now();
        const result = await next(call);
        const { headers } = (result.response ?? {}) as { headers?: Record<string, string> };
        const theirs = Date.parse(headers?.date ?? '');
        // A Date header has whole seconds: on average half a second has passed since.
        if (!Number.isNaN(theirs)) this.behindMs = theirs + 500 - (sent + Date.now()) / 2;
        return result;
      },
      { step: 'deserialize', priority: 'high' },
    );
  }
}
