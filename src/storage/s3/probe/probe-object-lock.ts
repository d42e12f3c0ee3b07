import {
  type DefaultRetention,
  GetObjectLockConfigurationCommand,
  PutObjectRetentionCommand,
} from '@aws-sdk/client-s3';
import type { Finding } from '../../../floor/finding.ts';
import { formatDuration } from '../../../floor/units.ts';
import { note, ok, wrong } from '../../findings.ts';
import type { S3Options } from '../client.ts';
import { statusOf } from '../errors.ts';
import type { ProbedBucket } from './probed-bucket.ts';

const what = 'object lock';
const day = 86_400_000;
const daysOf = (ms: number) => (ms % day === 0 ? `${ms / day} days` : formatDuration(ms));

/** Checks what the bucket locks by itself, and whether S3_OBJECT_LOCK works there. Locks nothing. */
export async function objectLock(bucket: ProbedBucket): Promise<Finding[]> {
  const wanted = bucket.options.objectLock;
  // A bucket without versions has no lock.
  if (bucket.versionsStay === false) return wanted ? [hasNone] : [];
  const { Bucket } = bucket.at('');
  const config = await bucket.client.send(new GetObjectLockConfigurationCommand({ Bucket })).then(
    ({ ObjectLockConfiguration }) => ObjectLockConfiguration,
    (error) => {
      if (statusOf(error) === 403) throw error;
    },
  );
  const rule = config?.Rule?.DefaultRetention;
  if (rule) bucket.versionsStay = true;
  const standard = rule ? ruleFinding(rule) : ok(what, 'no default retention');
  if (!wanted) return [standard];
  if (config?.ObjectLockEnabled !== 'Enabled') return [hasNone];
  return [...(rule ? [standard] : []), ...(await settingFindings(bucket, wanted))];
}

const hasNone = wrong(
  what,
  'S3_OBJECT_LOCK is set, but the bucket has no Object Lock: no file can be written',
  'use a bucket that was made with Object Lock, or remove S3_OBJECT_LOCK',
);

function ruleFinding({ Mode, Years, Days }: DefaultRetention): Finding {
  const [count, unit] = Years ? [Years, 'year'] : [Days, 'day'];
  const time = `${count} ${unit}${count === 1 ? '' : 's'}`;
  return ok(what, `${Mode} for ${time}: replaced and removed objects stay that long, and cost storage`);
}

/** Tests S3_OBJECT_LOCK with an upload that is never completed, and with a retention for an object that does not exist. */
async function settingFindings(
  bucket: ProbedBucket,
  { mode, ms }: NonNullable<S3Options['objectLock']>,
): Promise<Finding[]> {
  await bucket.beginUpload({ media: true });
  const RetainUntilDate = new Date(Date.now() + ms);
  const Retention = { Mode: mode, RetainUntilDate };
  const nothing = bucket.at(`${bucket.own(bucket.probe.Key)}-of-nothing`);
  const denied = await bucket.client.send(new PutObjectRetentionCommand({ ...nothing, Retention })).then(
    () => false,
    (error) => statusOf(error) === 403,
  );
  const meaning = `each media file is locked (${mode}) until ${daysOf(ms)} after it was written, and longer while it is in the library`;
  const undone =
    mode === 'COMPLIANCE'
      ? 'nobody can shorten or remove the lock of a written file, not even the owner of the account'
      : 'only an account with s3:BypassGovernanceRetention can remove a written file earlier';
  return [
    ok(what, meaning),
    note('not to be undone', `${undone}; replaced and removed files stay until then, and cost storage`),
    denied
      ? wrong('extend lock', 'the store denies a longer retention', 'allow s3:PutObjectRetention')
      : ok('extend lock', 'the retention of a file can be extended'),
  ];
}
