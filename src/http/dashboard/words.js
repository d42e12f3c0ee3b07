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

/** The types that the library's description names; there may be others. @type {Record<string, string>} */
export const typeNames = {
  videos: 'Videos',
  selects: 'Selects',
  social: 'Social',
  photography: 'Photography',
  graphics: 'Graphics',
  audio: 'Audio',
  documents: 'Documents',
  'brand assets': 'Brand assets',
};

/** What there is to have: what is gone or has no file is not. @param {Status['assets']['byState']} byState */
export function wanted(byState) {
  const { gone, unavailable, ...rest } = byState;
  return Object.values(rest).reduce((sum, n) => sum + n, 0);
}

/** How the assets that are wanted are told from all where some have no file. @param {Status['assets']['byState']} byState */
export const withFile = ({ unavailable }) => (unavailable > 0 ? ' with a file' : '');

/**
 * How a connection is, in a word, and whether that is good.
 * @param {Connection} connection
 * @returns {{ tone: 'good' | 'go' | 'warn' | 'bad', word: string, more?: string }}
 */
export function conditionOf({ status, counts, adaptiveLimit, lastSyncAt, settings, connectedAt }) {
  if (status === 'disconnected') return { tone: 'bad', word: 'Disconnected', more: 'Its user has to connect again.' };
  if (status === 'paused') return { tone: 'warn', word: 'Paused' };
  if (adaptiveLimit.parkedUntil) {
    return { tone: 'warn', word: 'Waiting', more: `It goes on by itself ${ago(adaptiveLimit.parkedUntil)}.` };
  }
  const { pending, transferring } = counts.byState;
  if (pending + transferring > 0)
    return { tone: 'go', word: 'Mirroring', more: `${counted(pending + transferring, 'asset')} to go` };
  if (lastSyncAt === null) return { tone: 'go', word: 'First sync' };
  const late = Date.now() - new Date(lastSyncAt ?? connectedAt).getTime() - 2 * settings.syncInterval - 60_000;
  if (late > 0) return { tone: 'warn', word: 'Late', more: 'Its last sync is older than it should be.' };
  return { tone: 'good', word: 'Up to date' };
}

/** What happened to something, behind its name. @type {Record<string, string>} */
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
  'asset.conflict': 'has the id of another file',
  'sync.failed': 'could not be synced',
};

/** What an operator did, before the name of what it was done to. @type {Record<string, string>} */
const deeds = {
  signIn: 'signed in',
  signOut: 'signed out',
  createConnectLink: 'made a connect link',
  resyncConnection: 'asked for a sync of',
  pauseConnection: 'paused',
  resumeConnection: 'resumed',
  disconnectConnection: 'disconnected',
  changeConnection: 'changed settings of',
  changeSettings: 'changed settings',
  retryAsset: 'asked to try again',
  retryFailedOfConnection: 'asked to try again what had failed of',
  verify: 'asked for a verification',
  rotateKeys: 'rotated the keys',
};

/** What happened to no asset or connection. @type {Record<string, string>} */
const happenedHere = {
  'bucket.differs': 'The bucket had lost something; it is made again',
  'webhook.gone': 'The endpoint of WEBHOOK_URL takes no more events',
  'webhook.given_up': 'An event was given up that the endpoint of WEBHOOK_URL did not take',
};

/** A sentence of somebody else's, as a sentence here. @param {string} text */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * An event in words, before and behind the name of what it is about.
 * @param {Pick<MirrorEvent, 'kind' | 'data'>} event
 * @returns {{ before: string, after: string, reason?: string, tone: 'plain' | 'good' | 'warn' | 'bad' }}
 */
export function tell({ kind, data }) {
  const reason =
    typeof data.reason === 'string' ? data.reason : typeof data.error === 'string' ? data.error : undefined;
  const more = reason === undefined ? {} : { reason: sentence(reason) };
  if (kind.startsWith('operator.')) {
    const action = kind.slice('operator.'.length);
    const refused = data.outcome === 'refused';
    return {
      before: `An operator ${deeds[action] ?? `did ${action}`}`,
      after: refused ? '(refused)' : '',
      tone: refused ? 'warn' : 'plain',
      ...more,
    };
  }
  const tone = /disconnected|failed|differs|given_up|webhook/.test(kind)
    ? 'bad'
    : /paused|lost|held|gone/.test(kind)
      ? 'warn'
      : /recovered|connected|caught_up|mirrored/.test(kind)
        ? 'good'
        : 'plain';
  const after = happened[kind];
  return after === undefined
    ? { before: happenedHere[kind] ?? kind, after: '', tone, ...more }
    : { before: '', after, tone, ...more };
}
