import { formatBytes, formatDuration } from '../../floor/units.ts';
import { type AttestRequest, attestCopy, proveAsset } from '../../offline/attest.ts';
import { type Attested, nothingAttested } from '../../verify/attest/attest.ts';
import type { Finding } from '../../verify/attest/finding.ts';
import { UsageError } from '../failures.ts';
import { placeOf } from '../options.ts';
import { counted, number, paint, printJson, progressBar } from '../output.ts';
import { stopSignal } from '../stop-signal.ts';
import type { Verbs } from '../verb.ts';
import { runReported } from '../work-report.ts';

interface AttestOptions {
  json?: boolean;
  key?: string;
  asset?: string;
  day?: string;
}

/**
 * Shows the progress of a check and a summary, or prints the proof of one asset. Returns how many problems were found, and objects
 * that are not proven. @throws UsageError
 */
export async function attest(
  offline: Verbs['offline'],
  place: string | undefined,
  options: AttestOptions,
): Promise<number> {
  const { json = false, key, asset: assetId, day } = options;
  const request = requestOf(place, options);
  // Auditors have no database.
  const { config, log } = await offline({ database: false });
  if (assetId !== undefined) {
    printJson(await proveAsset(config, { ...request, assetId, day }, { log, stop: stopSignal() }));
    return 0;
  }
  const title = (storage: string) => `${paint('bold', 'attest')}  checking ${storage} against its signed manifests`;
  const { problems, unproven } = await runReported<Attested>(
    ({ start, problem, progress }, stop) =>
      attestCopy(config, request, {
        log,
        stop,
        report: {
          start: (storage) => start(title(storage)),
          found: (finding) => problem(sentence(finding)),
          progress,
        },
      }),
    {
      json,
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
  return problems + unproven;
}

/** @throws UsageError */
function requestOf(place: string | undefined, { key, asset, day }: AttestOptions): AttestRequest {
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
