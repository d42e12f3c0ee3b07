/** @import { Connection, MirrorEvent } from './types.d.ts' */
import { ago, counted, number } from './format.js';

/** The states of an asset, in the order of the bars. */
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
  processing: 'Processing',
  pending: 'Pending',
  failed: 'Failed',
  unavailable: 'Unavailable',
  gone: 'Gone',
};

/** @type {Record<string, string>} */
export const kindNames = {
  processing: 'Processing video',
  transcript: 'Transcript',
  thumbnail: 'Thumbnail',
  retry: 'Retry',
};

/** The types of the specification; there may be others. @type {Record<string, string>} */
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

/** @param {string} type */
export const typeName = (type) => typeNames[type] ?? type;

/** Added to the number of expected assets if some have no file. @param {{ unavailable: number }} byState */
export const withFile = ({ unavailable }) => (unavailable > 0 ? ' with a file' : '');

/** What to know about the condition of a connection. @param {Connection} connection */
export function aboutCondition({ condition: { code, until }, counts }) {
  const { pending, transferring, failed } = counts.byState;
  if (code === 'disconnected') return 'The user must connect again.';
  if (code === 'held') return 'Too many changes at once. Check them before you accept them.';
  if (code === 'waiting' && until) return `Continues ${ago(until)}.`;
  if (code === 'late') return 'The next sync is overdue.';
  if (code === 'all_skipped') return 'The filters skip all assets.';
  if (code === 'mirroring') return `${counted(pending + transferring, 'asset')} to transfer`;
  if (code === 'assets_failed') return counted(failed, 'asset');
  return undefined;
}

/** Events: the text after the name of the asset or connection. @type {Record<string, string>} */
const eventTexts = {
  'connection.connected': 'connected',
  'connection.reconnected': 'reconnected',
  'connection.recovered': 'works again',
  'connection.disconnected': 'was disconnected',
  'connection.paused': 'was paused',
  'connection.resumed': 'was resumed',
  'connection.changed': 'has new settings',
  'connection.caught_up': 'finished its first sync after the reconnect',
  'asset.failed': 'failed',
  'asset.damaged': 'was damaged or missing in the bucket',
  'asset.gone': 'is gone from the library',
  'asset.removed': 'was removed from the bucket',
  'asset.mirrored': 'was mirrored',
  'asset.replaced': 'has a newer file',
  'asset.transcript': 'has a transcript',
  'asset.conflict': 'has an id that another company lists, too',
  'sync.failed': 'could not be synced',
};

/** @param {string} kind @param {MirrorEvent['data']} data */
function companyWords(kind, data) {
  const { companyName = 'a company' } = data;
  if (kind === 'company.held') return `has a held company, ${companyName}: ${heldWords(/** @type {any} */ (data))}`;
  if (kind === 'company.gained') return `can now read ${companyName}`;
  if (kind === 'company.lost') return `can no longer read ${companyName}`;
  return undefined;
}

/** Changes that are held because they are too many. @param {{ kind: string, count: number, known: number }} changes */
export const heldWords = ({ kind, count, known }) => {
  const share = `${number(count)} of ${number(known)}`;
  if (kind === 'missing') return `${share} assets are missing in the library`;
  if (kind === 'replaced') return `the library has other files for ${share} mirrored assets`;
  return `GONE_RETENTION would remove ${share} mirrored assets`;
};

/** @param {string} action */
export const actionWords = (action) => sentence(actionTexts[action] ?? action);

/** Operator actions: the text before the name of the object. @type {Record<string, string>} */
const actionTexts = {
  signIn: 'signed in',
  signOut: 'signed out',
  createConnectLink: 'created a connect link',
  resyncConnection: 'started a sync of',
  pauseConnection: 'paused',
  resumeConnection: 'resumed',
  disconnectConnection: 'disconnected',
  changeConnection: 'changed settings of',
  changeSettings: 'changed settings',
  retryAsset: 'retried',
  retryFailedOfConnection: 'retried the failed assets of',
  verify: 'started a verification',
  startDrill: 'started a restore drill',
  rotateKeys: 'rotated the keys',
  testWebhook: 'tested the webhook endpoint',
  testWebhookOf: 'tested a webhook endpoint',
  addWebhook: 'added a webhook endpoint',
  changeWebhook: 'changed a webhook endpoint',
  removeWebhook: 'removed a webhook endpoint',
  redeliver: 'sent webhook messages again',
  hold: 'protected assets from removal',
  release: 'ended a protection from removal',
  previewErasure: 'previewed an erasure',
  erase: 'erased assets',
  createToken: 'created an API token',
  revokeToken: 'revoked an API token',
  endSession: 'ended a session',
  getMedia: 'opened a file of',
  getThumbnail: 'opened a thumbnail of',
  getCaptions: 'opened the captions of',
  getRecord: 'opened the record of',
  getAssetZip: 'downloaded files',
  getAssetZipOf: 'downloaded files',
  listAudit: 'read the audit log',
  listTokens: 'listed API tokens',
};

/** Events without an asset or connection. @type {Record<string, string>} */
const generalEventTexts = {
  'drill.passed': 'A restore drill passed',
  'drill.failed': 'A restore drill failed',
  'bucket.differs': 'A verification found that the bucket differs from the database',
  'webhook.gone': 'A webhook endpoint answered 410; its events wait until it is enabled again',
  'webhook.given_up': 'An event was given up: a webhook endpoint did not accept it for 3 days',
};

/** A text with a capital letter. Only for our texts: others may begin with a name. @param {string} text */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/**
 * An event as text before and after the name of its subject.
 * @param {Pick<MirrorEvent, 'kind' | 'data'>} event
 * @returns {{ before: string, after: string, reason?: string, tone: 'plain' | 'good' | 'warn' | 'bad' }}
 */
export function eventWords({ kind, data }) {
  const reason =
    typeof data.reason === 'string' ? data.reason : typeof data.error === 'string' ? data.error : undefined;
  const more = reason === undefined ? {} : { reason };
  if (kind.startsWith('operator.')) {
    const action = kind.slice('operator.'.length);
    const refused = data.outcome === 'refused';
    const who = typeof data.by === 'string' ? data.by : 'Someone';
    return {
      before: `${refused ? 'Refused: ' : ''}${who} ${actionTexts[action] ?? `did ${action}`}`,
      after: '',
      tone: refused ? 'warn' : 'plain',
      ...more,
    };
  }
  const tone = /disconnected|failed|damaged|differs|given_up|webhook/.test(kind)
    ? 'bad'
    : /paused|lost|held|gone/.test(kind)
      ? 'warn'
      : /recovered|connected|caught_up|mirrored|passed/.test(kind)
        ? 'good'
        : 'plain';
  const after = companyWords(kind, data) ?? eventTexts[kind];
  return after === undefined
    ? { before: generalEventTexts[kind] ?? kind, after: '', tone, ...more }
    : { before: '', after, tone, ...more };
}
