import { askedAgain } from '../pacing/adaptive-concurrency.ts';
import type { Asset, Connection } from '../store/database/schema.ts';
import { formatBytes } from '../units.ts';

export interface Circumstances {
  now: Date;
  /** The connection in charge. */
  connection: Connection | undefined;
  /** Whether it can read the asset's company now. */
  readable: boolean;
  /** Why the bucket is unavailable; null if it is not. */
  bucketTrouble: string | null;
  /** The stored parts of an unfinished upload. */
  stored: { parts: number; bytes: number };
}

/** Says where an asset is, or why it is not mirrored, what it waits for, until when, and what to do. Pure. */
export function explanationOf(asset: Asset, at: Circumstances): string[] {
  const { media, skipped, connectionId } = asset;
  const id = asset.id;
  if (skipped !== null) {
    return [
      `It is skipped by a filter of connection ${connectionId}: ${skipped}.`,
      `Show or change the filters with \`asset-mirror set ${connectionId}\`; they apply at once.`,
    ];
  }
  const because = asset.reason ? `: ${asset.reason}` : '';
  const retry = `Retry now with \`asset-mirror retry ${id}\``;
  switch (asset.state) {
    case 'mirrored':
      return [...whereItIs(asset), ...sidecarLines(asset), ...(asset.nextAt ? waits(asset, at) : [])];
    case 'gone':
      return media
        ? [
            'It is no longer in the library. Its files stay in the bucket and are not updated any more.',
            ...whereItIs(asset),
          ]
        : ['It is no longer in the library, and it was never mirrored. There is nothing to do.'];
    case 'unavailable':
      return [`The library has no file of it${because}.`, 'Each full sync checks again.'];
    case 'failed':
      return [
        `It failed${asset.attempts > 0 ? ` after ${asset.attempts} attempt${asset.attempts === 1 ? '' : 's'}` : ''}${because}.`,
        Object.keys(asset.listed).length === 0
          ? 'Its listing breaks the API schema. Once that is fixed in the library, the next sync mirrors it.'
          : `${retry}, or with the next full sync.`,
      ];
    case 'processing':
      return [
        `The library is still transcoding it${asset.processingSince ? `, since ${iso(asset.processingSince)} or earlier` : ''}.`,
        ...waits(asset, at),
      ];
    case 'transferring':
    case 'pending': {
      const part = asset.upload
        ? `${at.stored.parts} parts, ${formatBytes(at.stored.bytes)} of ${formatBytes(asset.upload.bytes)}, are stored.`
        : '';
      return [
        media
          ? 'The file in the library has changed; the new one is not in the bucket yet.'
          : 'It is not in the bucket yet.',
        ...(isLeased(asset, at.now) ? ['A worker is working on it.'] : waits(asset, at)),
        ...(part ? [part] : []),
      ];
    }
  }
}

const iso = (date: Date) => date.toISOString();
const isLeased = ({ leaseUntil }: Asset, now: Date) => leaseUntil !== null && leaseUntil > now;

function whereItIs({ media, mirroredAt, verifiedAt }: Asset): string[] {
  if (!media) return [];
  const sums = Object.entries(media.checksums).map(([name, value]) => `${name} ${value}`);
  const what = [formatBytes(media.bytes), media.variant === 'mp4' ? 'the mp4 rendition' : 'the original', ...sums];
  return [
    `It is in the bucket${mirroredAt ? ` since ${iso(mirroredAt)}` : ''}: ${media.key} (${what.join(', ')}).`,
    ...(verifiedAt ? [`Its checksum was last verified at ${iso(verifiedAt)}.`] : []),
  ];
}

function sidecarLines({ id, transcriptState, transcriptDeadline, thumbnailState, reason }: Asset): string[] {
  const until = transcriptDeadline ? ` until ${iso(transcriptDeadline)}` : '';
  return [
    ...(transcriptState === 'pending'
      ? [`Its transcript is not available yet. Follow-up checks continue${until}.`]
      : []),
    ...(transcriptState === 'gave_up'
      ? [`Its transcript was given up${reason ? `: ${reason}` : ''}. Check again with \`asset-mirror retry ${id}\`.`]
      : []),
    ...(thumbnailState === 'pending' ? ['Its thumbnail is not available yet. Follow-up checks continue.'] : []),
    ...(thumbnailState === 'gave_up'
      ? [`Its thumbnail was given up. Check again with \`asset-mirror retry ${id}\`.`]
      : []),
  ];
}

/** Why a connection waits until `until`. */
function whyParked(reason: string | null, until: string): string {
  if (reason?.includes('the service asked to wait'))
    return `The library asked its connection to wait until ${until} (${reason}).`;
  if (reason?.includes(askedAgain)) {
    return `The library does not answer, or only with errors, so the connection waits until ${until} (${reason}).`;
  }
  return `Its connection waits until ${until}${reason ? ` (${reason})` : ''}.`;
}

/** The first thing that it waits for. */
function waits(asset: Asset, { now, connection, readable, bucketTrouble }: Circumstances): string[] {
  const { nextAt, reason, queuedAt } = asset;
  if (!connection) {
    return ['No connection can read its company. Create a link for a user who can with `asset-mirror connect-link`.'];
  }
  const { id } = connection;
  if (connection.status === 'paused') return [`Its connection is paused. Continue with \`asset-mirror resume ${id}\`.`];
  if (connection.status === 'disconnected') {
    return [
      `Its connection is disconnected. Create a link to reconnect with \`asset-mirror connect-link --connection ${id}\`.`,
    ];
  }
  if (!readable) return [`Its connection ${id} can no longer read its company. It continues when a connection can.`];
  if (bucketTrouble !== null) return [`The bucket is unavailable, so all assets wait: ${bucketTrouble}.`];
  if (connection.parkedUntil && connection.parkedUntil > now) {
    return [`${whyParked(connection.lastError, iso(connection.parkedUntil))} It then continues by itself.`];
  }
  if (nextAt && nextAt > now) {
    return [
      `Next try at ${iso(nextAt)}${reason ? `. Last reason: ${reason}` : ''}.`,
      `Retry now with \`asset-mirror retry ${asset.id}\`.`,
    ];
  }
  if (queuedAt) return [`It has been in the queue since ${iso(queuedAt)}, and waits for a worker.`];
  return ['It waits for a free slot. The newest assets of a connection come first.'];
}
