import { GetBucketLifecycleConfigurationCommand, type LifecycleRule } from '@aws-sdk/client-s3';
import type { Finding } from '../../../floor/finding.ts';
import { note, ok, wrong } from '../../findings.ts';
import { codeOf, statusOf } from '../errors.ts';
import type { ProbedBucket } from './probed-bucket.ts';

/** An upload may wait for days: for the library, the bucket, or an operator. */
const leastDays = 7;

export async function lifecycle(bucket: ProbedBucket): Promise<Finding[]> {
  const rules = await bucket.client
    .send(new GetBucketLifecycleConfigurationCommand({ Bucket: bucket.options.bucket }))
    .then(
      ({ Rules = [] }) => Rules.filter((rule) => rule.Status === 'Enabled'),
      (error) => {
        if (codeOf(error) === 'NoSuchLifecycleConfiguration' || statusOf(error) === 404) return [];
        throw error;
      },
    );
  return lifecycleFindings(rules, bucket.full(''));
}

function uploadFinding(days: number | undefined): Finding {
  if (days === undefined) {
    const remedy = `add AbortIncompleteMultipartUpload of ${leastDays} days or more: stored parts of such uploads cost storage`;
    return note('lifecycle', 'no rule removes unfinished uploads in parts', remedy);
  }
  const found = `unfinished uploads in parts are removed after ${days} ${days === 1 ? 'day' : 'days'}`;
  return days < leastDays
    ? note('lifecycle', found, `set ${leastDays} days or more, so that interrupted transfers can be resumed`)
    : ok('lifecycle', found);
}

/** Findings about the lifecycle rules that apply to objects below `prefix`. */
export function lifecycleFindings(rules: LifecycleRule[], prefix: string): Finding[] {
  const prefixOf = (rule: LifecycleRule) => rule.Filter?.Prefix ?? rule.Filter?.And?.Prefix ?? rule.Prefix ?? '';
  const tagged = (rule: LifecycleRule) => Boolean(rule.Filter?.Tag || rule.Filter?.And?.Tags?.length);
  const touching = rules.filter((rule) => {
    const theirs = prefixOf(rule);
    return (theirs.startsWith(prefix) || prefix.startsWith(theirs)) && !tagged(rule);
  });
  const findings: Finding[] = [];
  for (const rule of touching) {
    const named = rule.ID ? `rule "${rule.ID}"` : 'a rule';
    if (rule.Expiration?.Days || rule.Expiration?.Date) {
      const when = rule.Expiration.Days ? `after ${rule.Expiration.Days} days` : 'on a date';
      findings.push(wrong('lifecycle', `${named} removes objects ${when}`, 'exclude the mirror from this rule'));
    }
    const { NoncurrentDays } = rule.NoncurrentVersionExpiration ?? {};
    if (NoncurrentDays) {
      const found = `${named} removes versions ${NoncurrentDays} days after they are replaced`;
      findings.push(note('lifecycle', found, 'it must not be shorter than KEEP_VERSIONS'));
    }
    const cold = rule.Transitions?.find(({ StorageClass }) => /GLACIER$|DEEP_ARCHIVE/.test(StorageClass ?? ''));
    if (cold) {
      const found = `${named} moves objects to ${cold.StorageClass}`;
      findings.push(note('lifecycle', found, 'they cannot be read or verified there without a restore'));
    }
  }
  const clears = touching.filter((rule) => prefix.startsWith(prefixOf(rule)));
  const days = clears.flatMap((rule) => rule.AbortIncompleteMultipartUpload?.DaysAfterInitiation ?? []);
  // The shortest rule decides.
  findings.push(uploadFinding(days.length > 0 ? Math.min(...days) : undefined));
  return findings;
}
