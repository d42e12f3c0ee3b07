import type { Answer, ConnectionSummary, Status } from './answers.ts';
import type { ApiClient } from './client.ts';
import { counted, harmless } from './output.ts';

/** `resync --wait` waits for shorter delays, and reports longer ones. */
const patienceMs = 5 * 60_000;

const isFarOff = (time: string | null) => time !== null && Date.parse(time) > Date.now() + patienceMs;

/** Says why a connection does no work for longer than `patienceMs`, and what to do. */
export function whyConnectionWaits(connection: ConnectionSummary): string | undefined {
  const { id, status, adaptiveLimit } = connection;
  if (status !== 'active') {
    const remedy = status === 'paused' ? 'resume' : 'connect-link --connection';
    return `the connection is ${status}. The rest is mirrored after \`asset-mirror ${remedy} ${id}\`.`;
  }
  if (!isFarOff(adaptiveLimit.delayedUntil)) return undefined;
  return `the connection ${delayOf(connection)}. Then it continues by itself.`;
}

/**
 * Says which pending assets of a connection are not mirrored soon, why, and what to do. Undefined: none is pending, or at
 * least one is due soon.
 */
export async function whyAssetsWait(
  api: ApiClient,
  { id: connectionId, counts }: ConnectionSummary,
): Promise<string | undefined> {
  if (counts.byState.pending === 0 || counts.byState.transferring > 0) return undefined;
  const unreadable: Answer<'assets'>['assets'] = [];
  const later: Answer<'assets'>['assets'] = [];
  for await (const { assets } of api.assetPages({ connectionId, state: 'pending' })) {
    for (const asset of assets) {
      if (asset.reason?.code === 'no_reader') unreadable.push(asset);
      else if (isFarOff(asset.nextAt)) later.push(asset);
      else return undefined;
    }
  }
  const [first] = later.sort((a, b) => Date.parse(a.nextAt!) - Date.parse(b.nextAt!));
  const sentences = [
    unreadable.length > 0
      ? `${counted(unreadable.length, 'asset')} cannot be mirrored, because no connection can read its company now. ` +
        'Connect a user who can, with `asset-mirror connect-link`.'
      : '',
    first
      ? `${counted(later.length, 'asset')} will be tried again later, the first at ${first.nextAt}` +
        `${first.reason ? `: ${harmless(first.reason.text)}` : ''}. Try them now with \`asset-mirror retry ASSET\`.`
      : '',
  ].filter(Boolean);
  if (sentences.length === 0) return undefined;
  return `${sentences.join(' ')} List them with \`asset-mirror assets --state pending --connection ${connectionId}\`.`;
}

/**
 * Says why nothing is mirrored for now: when the bucket becomes unavailable, and at each new delay of the connection. Returns
 * whether the connection is delayed.
 */
export function waitReporter(say: (text: string) => void) {
  let bucketWasOk = true;
  let lastDelay: string | undefined;
  return ({ bucket }: Status, connection: ConnectionSummary | undefined): boolean => {
    if (!bucket.ok && bucketWasOk)
      say(`~ The bucket is unavailable, so all assets wait: ${harmless(bucket.reason ?? '')}`);
    bucketWasOk = bucket.ok;
    const delay = connection && delayOf(connection);
    if (delay !== undefined && delay !== lastDelay) say(`~ The connection ${delay}`);
    lastDelay = delay;
    return delay !== undefined;
  };
}

/** The end of a connection's delay, and the reason. */
function delayOf({ adaptiveLimit: { delayedUntil }, lastError }: ConnectionSummary): string | undefined {
  if (delayedUntil === null) return undefined;
  return `waits until ${delayedUntil}${lastError ? `: ${harmless(lastError)}` : ''}`;
}
