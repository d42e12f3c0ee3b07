/** @import { Connection, MirrorEvent, Status } from './types.d.ts' */
import { ago, counted } from './format.js';

/** The states of an asset, in the order in which bars show them. */
export const states = /** @type {const} */ ([
  'mirrored',
  'transferring',
  'processing',
  'pending',
  'failed',
  'unavailable',
  'gone',
]);

/** @type {Record<string, string>} */
export const stateNames = {
  mirrored: 'Mirrored',
  transferring: 'Transferring',
  processing: 'Transcoding',
  pending: 'Waiting',
  failed: 'Failed',
  unavailable: 'Unavailable',
  gone: 'Gone',
};

/** @type {Record<string, string>} */
export const kindNames = {
  processing: 'Transcoding video',
  transcript: 'Transcript',
  thumbnail: 'Thumbnail',
  retry: 'Another try',
};

/** What there is to have: what is gone or has no file is not. @param {Status['assets']['byState']} byState */
export function wanted(byState) {
  const { gone, unavailable, ...rest } = byState;
  return Object.values(rest).reduce((sum, n) => sum + n, 0);
}

/**
 * How a connection is, in a word, and whether that is good.
 * @param {Connection} connection
 * @returns {{ tone: 'good' | 'go' | 'warn' | 'bad', word: string, more?: string }}
 */
export function conditionOf({ status, counts, pace, lastSyncAt, settings, connectedAt }) {
  if (status === 'disconnected') return { tone: 'bad', word: 'Disconnected', more: 'Its user has to connect again.' };
  if (status === 'paused') return { tone: 'warn', word: 'Paused' };
  if (pace.parkedUntil) {
    return { tone: 'warn', word: 'Waiting', more: `The library asked to wait; it goes on ${ago(pace.parkedUntil)}.` };
  }
  const { pending, transferring } = counts.byState;
  if (pending + transferring > 0)
    return { tone: 'go', word: 'Mirroring', more: `${counted(pending + transferring, 'asset')} to go` };
  if (lastSyncAt === null) return { tone: 'go', word: 'First sync' };
  const late = Date.now() - new Date(lastSyncAt ?? connectedAt).getTime() - 2 * settings.syncInterval - 60_000;
  if (late > 0) return { tone: 'warn', word: 'Late', more: 'Its last sync is older than it should be.' };
  return { tone: 'good', word: 'Up to date' };
}

/** @type {Record<string, string>} */
const happened = {
  'connection.connected': 'connected',
  'connection.reconnected': 'reconnected',
  'connection.recovered': 'is back',
  'connection.disconnected': 'was disconnected',
  'connection.paused': 'was paused',
  'connection.resumed': 'was resumed',
  'connection.changed': 'has other settings',
  'connection.caught_up': 'has caught up',
  'company.gained': 'can read another company',
  'company.lost': 'can no longer read a company',
  'company.held': 'listed less than half of a company: nothing was marked as gone',
  'asset.failed': 'failed',
  'asset.gone': 'is gone from the library',
  'asset.mirrored': 'was mirrored',
  'sync.failed': 'could not be synced',
  'bucket.differs': 'The bucket had lost something; it is made again',
};

/** @type {Record<string, string>} */
const deeds = {
  signIn: 'signed in',
  signOut: 'signed out',
  createConnectLink: 'made a connect link',
  resyncConnection: 'asked for a sync',
  pauseConnection: 'paused a connection',
  resumeConnection: 'resumed a connection',
  disconnectConnection: 'ended a connection',
  changeConnection: 'changed settings of a connection',
  changeSettings: 'changed settings',
  retryAsset: 'asked to try an asset again',
  retryFailedOfConnection: 'asked to try again what had failed',
  verify: 'asked for a verification',
  rotateKeys: 'rotated the keys',
};

/**
 * An event in words.
 * @param {MirrorEvent} event
 * @returns {{ text: string, reason?: string, tone: 'plain' | 'good' | 'warn' | 'bad' }}
 */
export function tell({ kind, data }) {
  const reason =
    typeof data.reason === 'string' ? data.reason : typeof data.error === 'string' ? data.error : undefined;
  const more = reason === undefined ? {} : { reason };
  if (kind.startsWith('operator.')) {
    const action = kind.slice('operator.'.length);
    const refused = data.outcome === 'refused' ? ', which was refused' : '';
    return {
      text: `An operator ${deeds[action] ?? `did ${action}`}${refused}`,
      tone: refused ? 'warn' : 'plain',
      ...more,
    };
  }
  const [what = ''] = kind.split('.');
  const subject = {
    connection: 'The connection',
    company: 'The connection',
    asset: 'The asset',
    sync: 'The connection',
  }[what];
  const words = happened[kind] ?? kind;
  const tone = /disconnected|failed|differs/.test(kind)
    ? 'bad'
    : /paused|lost|held|gone/.test(kind)
      ? 'warn'
      : /recovered|connected|caught_up|mirrored/.test(kind)
        ? 'good'
        : 'plain';
  return { text: subject && happened[kind] ? `${subject} ${words}` : words, tone, ...more };
}
