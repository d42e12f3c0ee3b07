import { because, renderReason, ruleText } from '../../floor/reasons.ts';
import { formatBytes } from '../../floor/units.ts';
import type { Asset, Connection, VerificationLine } from '../../store/database/schema.ts';
import type { OpenFinding } from '../../store/verifications/findings.ts';
import { isRepairable } from '../../verify/compare-objects.ts';

export interface Circumstances {
  now: Date;
  /** The connection that mirrors the asset. */
  connection: Connection | undefined;
  /** Whether the connection can read the asset's company now. */
  readable: boolean;
  /** Why the bucket is unavailable; null if it is not. */
  bucketTrouble: string | null;
  /** The objects of the asset, as the bucket has them now; or why the bucket could not be checked. */
  objects: Pick<VerificationLine, 'key' | 'reason' | 'difference' | 'mark' | 'remedy'>[] | string;
  /** What the latest verification found about the asset. */
  findings: OpenFinding[];
  /** A hold protects the asset from removal. */
  isProtected?: boolean;
  /** When the objects are removed because the asset is gone; null: they stay. */
  removedAt?: Date | null;
  /** The stored parts of an unfinished upload. */
  stored: { parts: number; bytes: number };
  /** Since when another file in the library is set aside; undefined: there is none. */
  setAsideSince?: Date | undefined;
}

/** Explains where an asset is, or why it is not mirrored, what it waits for, and what to do. Pure. */
export function explanationOf(asset: Asset, at: Circumstances): string[] {
  const { id, connectionId, media, reason, attempts } = asset;
  if (asset.skipped && reason?.code === 'skipped_by_filter') {
    return [
      `It is skipped by a filter of connection ${connectionId}: ${ruleText(reason)}.`,
      `Show or change the filters with \`asset-mirror set ${connectionId}\`; they apply at once.`,
    ];
  }
  switch (asset.state) {
    case 'mirrored':
      return [
        ...whereItIs(asset, at),
        ...replacementLines(asset, at),
        ...sidecarLines(asset),
        ...(asset.nextAt ? waitsFor(asset, at) : []),
      ];
    case 'gone':
      if (!media) return [`It is ${renderReason({ code: 'gone', inBucket: false })}. There is nothing to do.`];
      return [`It is no longer in the library. ${removalLine(at)}`, ...whereItIs(asset, at)];
    case 'unavailable':
      return [`The library has no file for it${because(reason)}.`, 'Each full sync checks again.'];
    case 'failed': {
      const tries = attempts > 0 ? ` after ${attempts} attempt${attempts === 1 ? '' : 's'}` : '';
      const isListed = Object.keys(asset.listed).length > 0;
      return [
        `It failed${tries}${because(reason)}.`,
        isListed
          ? `The next full sync tries again. To retry now: \`asset-mirror retry ${id}\`.`
          : 'Its listing cannot be used. When that is corrected in the library, the next sync mirrors it.',
      ];
    }
    case 'processing': {
      const since = asset.processingSince ? `, since ${iso(asset.processingSince)} or earlier` : '';
      return [`The library is still transcoding it${since}.`, ...waitsFor(asset, at)];
    }
    case 'transferring':
    case 'pending':
      return [
        media
          ? 'It is being mirrored again: its file in the library was replaced, an object is missing or damaged, or an operator asked for it.'
          : 'It is not in the bucket yet.',
        ...(isLeased(asset, at.now) ? ['A worker is working on it.'] : waitsFor(asset, at)),
        ...uploadLines(asset, at),
      ];
  }
}

function removalLine({ isProtected, removedAt }: Circumstances): string {
  if (!removedAt) return 'Its files stay in the bucket and are no longer updated.';
  if (isProtected) return 'A hold protects its files in the bucket from removal.';
  return `Its files are removed from the bucket after ${iso(removedAt)} (GONE_RETENTION). \`asset-mirror hold\` protects them.`;
}

const iso = (date: Date) => date.toISOString();
const isLeased = ({ leaseUntil }: Asset, now: Date) => leaseUntil !== null && leaseUntil > now;

function whereItIs(asset: Asset, at: Circumstances): string[] {
  const { media, mirroredAt, verifiedAt } = asset;
  if (!media) return [];
  const sums = Object.entries(media.checksums).map(([name, value]) => `${name} ${value}`);
  const what = [formatBytes(media.bytes), media.variant === 'mp4' ? 'the mp4 rendition' : 'the original', ...sums];
  const isMissing = differs(at);
  const since = mirroredAt ? ` since ${iso(mirroredAt)}` : '';
  return [
    `It ${isMissing ? 'should be' : 'is'} in the bucket${since}: ${media.key} (${what.join(', ')}).`,
    ...(verifiedAt ? [`Its checksum was last verified at ${iso(verifiedAt)}.`] : []),
    ...at.findings.map(
      ({ at: date, key, reason, verificationId }) =>
        `The ${verificationId === null ? 'scrub' : 'verification'} of ${iso(date)} found: ${key}${because(reason)}.`,
    ),
    ...checkLines(at.objects),
    ...(canBeRepaired(asset, at) ? ['Repair it with `asset-mirror verify --repair`.'] : []),
  ];
}

function replacementLines({ connectionId, companyId }: Asset, { setAsideSince }: Circumstances): string[] {
  if (!setAsideSince) return [];
  return [
    `The library has had another file for it since ${iso(setAsideSince)}. The stored one stays until the next sync has listed the whole company, or longer if too many files of the company have changed.`,
    `If the company is held, accept its new files with \`asset-mirror resync ${connectionId} --company ${companyId} --accept-replaced\`.`,
  ];
}

/** Whether a finding says that an object of the current file is missing or different. A superseded file cannot be repaired. */
const isWrong = ({ reason }: OpenFinding): boolean => !('version' in reason) && isRepairable(reason);

/** Whether an object differs now or, if the bucket cannot be checked, whether one is known to be wrong. */
const differs = ({ objects, findings }: Circumstances): boolean =>
  typeof objects === 'string'
    ? findings.some(isWrong)
    : objects.some(({ difference, mark }) => difference && mark !== '!');

const canBeRepaired = ({ state }: Asset, { objects, findings }: Circumstances): boolean =>
  typeof objects === 'string'
    ? state !== 'gone' && findings.some(isWrong)
    : objects.some(({ remedy }) => remedy !== null);

function checkLines(objects: Circumstances['objects']): string[] {
  if (typeof objects === 'string') return [`Its objects in the bucket could not be checked now: ${objects}.`];
  const wrong = objects.filter(({ difference }) => difference);
  if (wrong.length > 0)
    return wrong.map(({ key, reason }) => `Checked in the bucket just now: ${key}${because(reason)}.`);
  if (objects.length === 0) return [];
  const archived = objects.filter(({ reason }) => reason?.code === 'archived');
  return [
    ...archived.map(
      ({ key, reason }) => `Checked in the bucket just now: ${key}${because(reason)}. To read it, restore it there.`,
    ),
    `Checked in the bucket just now: ${objects.length === 1 ? 'the object is' : `all ${objects.length} objects are`} there.`,
  ];
}

function sidecarLines({ id, transcriptState, transcriptDeadline, thumbnailState, reason }: Asset): string[] {
  const lines: string[] = [];
  const retry = `Check again with \`asset-mirror retry ${id}\`.`;
  if (transcriptState === 'pending') {
    const until = transcriptDeadline ? ` until ${iso(transcriptDeadline)}` : '';
    lines.push(`Its transcript is not available yet. Follow-up checks continue${until}.`);
  }
  if (transcriptState === 'gave_up') lines.push(`Its transcript was given up${because(reason)}. ${retry}`);
  if (thumbnailState === 'pending') lines.push('Its thumbnail is not available yet. Follow-up checks continue.');
  if (thumbnailState === 'gave_up') lines.push(`Its thumbnail was given up. ${retry}`);
  return lines;
}

function uploadLines({ upload }: Asset, { stored }: Circumstances): string[] {
  if (!upload) return [];
  return [
    `${stored.parts} ${stored.parts === 1 ? 'part' : 'parts'} with ${formatBytes(stored.bytes)} of ${formatBytes(upload.bytes)} stored.`,
  ];
}

/** The first condition that it waits for. */
function waitsFor(asset: Asset, { now, connection, readable, bucketTrouble }: Circumstances): string[] {
  const { id, nextAt, reason, queuedAt } = asset;
  if (!connection) {
    return ['No connection can read its company. Connect a user who can, with `asset-mirror connect-link`.'];
  }
  if (connection.status === 'paused') {
    return [`Its connection is paused. Continue with \`asset-mirror resume ${connection.id}\`.`];
  }
  if (connection.status === 'disconnected') {
    return [
      `Its connection is disconnected. Create a link to reconnect with \`asset-mirror connect-link --connection ${connection.id}\`.`,
    ];
  }
  if (!readable) {
    return [
      `Its connection ${connection.id} can no longer read its company. It continues when a connection can read it.`,
    ];
  }
  if (bucketTrouble !== null) return [`The bucket is unavailable, so all assets wait: ${bucketTrouble}.`];
  if (connection.delayedUntil && connection.delayedUntil > now) {
    return [`${whyDelayed(connection, iso(connection.delayedUntil))} It then continues by itself.`];
  }
  if (nextAt && nextAt > now) {
    const last = reason ? ` Last reason: ${renderReason(reason)}.` : '';
    return [`Next try at ${iso(nextAt)}.${last}`, `Retry now with \`asset-mirror retry ${id}\`.`];
  }
  if (queuedAt) return [`It has been in the queue since ${iso(queuedAt)}, and waits for a worker.`];
  return ['It waits for a free slot. The newest assets of a connection come first.'];
}

/** Why a connection waits until `until`. */
function whyDelayed({ delayedReason }: Connection, until: string): string {
  const why = delayedReason ? ` (${renderReason(delayedReason)})` : '';
  switch (delayedReason?.code) {
    case 'asked_to_wait':
      return `The library asked its connection to wait until ${until}${why}.`;
    case 'library_unavailable':
      return `The library does not answer, or only with errors, so the connection waits until ${until}${why}.`;
    default:
      return `Its connection waits until ${until}${why}.`;
  }
}
