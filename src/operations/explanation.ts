import { askedToWait } from '../errors.ts';
import { askedAgain } from '../pacing/adaptive-concurrency.ts';
import type { Asset, Connection } from '../store/database/schema.ts';
import { formatBytes } from '../units.ts';

export interface Circumstances {
  now: Date;
  /** The one in charge. */
  connection: Connection | undefined;
  /** Whether it can read the asset's company at present. */
  readable: boolean;
  /** Why the bucket takes nothing at present. */
  bucketTrouble: string | null;
  /** Of the upload in parts that is under way. */
  stored: { parts: number; bytes: number };
}

/** In words: where an asset is, or why it is not there, what it waits for, until when, and what there is to do. Pure. */
export function explanationOf(asset: Asset, at: Circumstances): string[] {
  const { media, skipped, connectionId } = asset;
  const id = asset.id;
  if (skipped !== null) {
    return [
      `It is skipped by a filter of connection ${connectionId}: ${skipped}.`,
      `\`asset-mirror set ${connectionId}\` shows and changes them; what they let in is mirrored at once.`,
    ];
  }
  const because = asset.reason ? `: ${asset.reason}` : '';
  const retry = `\`asset-mirror retry ${id}\` tries again now`;
  switch (asset.state) {
    case 'mirrored':
      return [...whereItIs(asset), ...sidecarLines(asset), ...(asset.nextAt ? waits(asset, at) : [])];
    case 'gone':
      return media
        ? [
            'It is no longer in the library. What is in the bucket stays, and nothing more is done for it.',
            ...whereItIs(asset),
          ]
        : ['It is no longer in the library, and it was never mirrored. There is nothing to do.'];
    case 'unavailable':
      return [`The library has no file of it${because}.`, 'Each full sync looks again.'];
    case 'failed':
      return [
        `It failed${asset.attempts > 0 ? ` after ${asset.attempts} attempt${asset.attempts === 1 ? '' : 's'}` : ''}${because}.`,
        Object.keys(asset.listed).length === 0
          ? 'Its listing breaks the schema of the API: whoever runs the library can mend that, and the next sync then takes it.'
          : `${retry}; a full sync does so, too.`,
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
        media ? 'Another file takes the place of the one in the bucket.' : 'It is not in the bucket yet.',
        ...(inHand(asset, at.now) ? ['A worker has it in hand.'] : waits(asset, at)),
        ...(part ? [part] : []),
      ];
    }
  }
}

const iso = (date: Date) => date.toISOString();
const inHand = ({ leaseUntil }: Asset, now: Date) => leaseUntil !== null && leaseUntil > now;

function whereItIs({ media, mirroredAt, verifiedAt }: Asset): string[] {
  if (!media) return [];
  const sums = Object.entries(media.checksums).map(([name, value]) => `${name} ${value}`);
  const what = [formatBytes(media.bytes), media.variant === 'mp4' ? 'the mp4 rendition' : 'the original', ...sums];
  return [
    `It is in the bucket${mirroredAt ? ` since ${iso(mirroredAt)}` : ''}: ${media.key} (${what.join(', ')}).`,
    ...(verifiedAt ? [`Its bytes were last held against their checksum at ${iso(verifiedAt)}.`] : []),
  ];
}

function sidecarLines({ id, transcriptState, transcriptDeadline, thumbnailState, reason }: Asset): string[] {
  const until = transcriptDeadline ? `, until ${iso(transcriptDeadline)}` : '';
  return [
    ...(transcriptState === 'pending' ? [`Its transcript is not there yet, and is looked for${until}.`] : []),
    ...(transcriptState === 'gave_up'
      ? [`Its transcript was given up${reason ? `: ${reason}` : ''}. \`asset-mirror retry ${id}\` looks again.`]
      : []),
    ...(thumbnailState === 'pending' ? ['Its thumbnail is not there yet, and is looked for.'] : []),
    ...(thumbnailState === 'gave_up' ? [`Its thumbnail was given up. \`asset-mirror retry ${id}\` looks again.`] : []),
  ];
}

/** The reason as it was recorded, when nothing is asked for a connection `until` then. */
function whyParked(reason: string | null, until: string): string {
  if (reason?.includes(askedToWait)) return `The library asked its connection to wait, until ${until} (${reason}).`;
  if (reason?.includes(askedAgain)) {
    return `The library did not answer its connection, or with errors only, so it waits until ${until} (${reason}).`;
  }
  return `Its connection waits until ${until}${reason ? ` (${reason})` : ''}.`;
}

/** What it waits for: the first thing that is in its way. */
function waits(asset: Asset, { now, connection, readable, bucketTrouble }: Circumstances): string[] {
  const { nextAt, reason, queuedAt } = asset;
  if (!connection) {
    return ['Nobody who can read its company is connected: `asset-mirror connect-link` makes a link for who can.'];
  }
  const { id } = connection;
  if (connection.status === 'paused') return [`Its connection is paused: \`asset-mirror resume ${id}\` goes on.`];
  if (connection.status === 'disconnected') {
    return [`Its connection has ended: \`asset-mirror connect-link --connection ${id}\` makes a link to reconnect.`];
  }
  if (!readable) return [`Its connection ${id} can no longer read its company. It goes on when somebody can.`];
  if (bucketTrouble !== null) return [`The bucket takes nothing at present, so everything waits: ${bucketTrouble}.`];
  if (connection.parkedUntil && connection.parkedUntil > now) {
    return [`${whyParked(connection.lastError, iso(connection.parkedUntil))} It goes on by itself.`];
  }
  if (nextAt && nextAt > now) {
    return [
      `It is looked at again at ${iso(nextAt)}${reason ? `, for the last time this happened: ${reason}` : ''}.`,
      `\`asset-mirror retry ${asset.id}\` tries at once.`,
    ];
  }
  if (queuedAt) return [`It is on the queue since ${iso(queuedAt)}, and waits for a worker.`];
  return ['It waits for a free slot: the newest of its connection come first, a few at a time.'];
}
