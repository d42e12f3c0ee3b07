import { formatBytes, formatDuration } from '../../floor/units.ts';
import {
  type Attested,
  type AttestReport,
  type AttestRequest,
  type Finding,
  nothingAttested,
} from '../../offline/attest.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';
import { counted, number, paint, progressBar } from '../output.ts';
import { runReported } from '../work-report.ts';

export interface AttestOptions {
  json?: boolean;
  key?: string;
  asset?: string;
  day?: string;
}

/** @throws UsageError */
export function requestOf(place: string | undefined, { key, asset, day }: AttestOptions): AttestRequest {
  if (day !== undefined && asset === undefined) throw new UsageError('--day needs --asset.');
  const fingerprint = key?.toLowerCase();
  if (fingerprint !== undefined && !/^[\da-f]{64}$/.test(fingerprint)) {
    throw new UsageError(`--key: expected a fingerprint of 64 hexadecimal digits, found "${key}".`);
  }
  if (place === undefined) return { key: fingerprint };
  const at = placeOf(place);
  if (!at) throw new UsageError(`Expected a directory or s3://bucket/prefix, found "${place}".`);
  return { at, key: fingerprint };
}

/** `altered after 2026-01-31: KEY (why)`. */
const sentence = ({ what, key, after, why }: Finding) =>
  `${what}${after === null ? '' : ` after ${after}`}: ${key}${why ? ` (${why})` : ''}`;

/** Shows the progress of a check and a summary. Returns whether everything matches the signed manifests. */
export async function attest(
  work: (report: AttestReport) => Promise<Attested>,
  { json = false, key, stop }: { json?: boolean; key?: string; stop: AbortSignal },
): Promise<boolean> {
  const title = (storage: string) => `${paint('bold', 'attest')}  checking ${storage} against its signed manifests`;
  const { problems, unproven } = await runReported<Attested>(
    (report) =>
      work({
        start: (storage) => report.start(title(storage)),
        found: (finding) => report.problem(sentence(finding)),
        progress: report.progress,
      }),
    {
      json,
      stop,
      initial: nothingAttested,
      summaryOf: (progress, end) => summaryOf(progress, { ...end, key }),
      lineOf: ({ assets, total, bytes }, ms) =>
        [
          progressBar(assets, total),
          `${number(assets)} of ${counted(total, 'asset')}`,
          formatBytes(bytes),
          ms > 2000 ? `${formatBytes((bytes * 1000) / ms)}/s` : '',
        ].join('  '),
    },
  );
  return problems === 0 && unproven === 0;
}

function trustOf({ keyId, manifests }: Readonly<Attested>, key: string | undefined): string {
  if (manifests === 0) return '  There is no manifest: none was written, or all were removed.';
  if (keyId === null) return '  Nothing is signed: set SIGNING_KEY.';
  if (key !== undefined) return `  Signed by the key that you gave: ${keyId}`;
  return `  Signed by ${keyId}\n  Anyone can create a key. Ask the operator for the fingerprint, and compare it with this one or pass it as --key.`;
}

function summaryOf(
  progress: Readonly<Attested>,
  { interrupted, ms, key }: { interrupted: boolean; ms: number; key: string | undefined },
): string {
  const { manifests, days, day, objects, bytes, unproven, problems } = progress;
  const isGood = problems === 0 && unproven === 0 && !interrupted;
  const none = isGood ? 'Everything matches the signed manifests' : 'No problem found';
  const result = problems > 0 ? `${counted(problems, 'problem')} found` : none;
  return [
    `${paint(isGood ? 'green' : 'red', paint('bold', result))}: ${counted(objects, 'object')}, ${formatBytes(bytes)} read in ${formatDuration(ms)}`,
    `  ${counted(manifests, 'manifest')}, ${number(days)} intact ${days === 1 ? 'inventory' : 'inventories'}; the last: ${day ?? 'none'}`,
    ...(unproven > 0 ? [`  ${counted(unproven, 'object')} not proven`] : []),
    trustOf(progress, key),
  ].join('\n');
}
