import { goneText, objectText, storedOrKept } from './compared-object.ts';
import { heldText } from './held-changes.ts';
import type { AskedWait, DataOf, FilterRule, Reason, ReasonCode } from './reason-codes.ts';
import { formatBytes, formatDuration } from './units.ts';

const sentences: { [Code in ReasonCode]: (data: DataOf[Code]) => string } = {
  error: ({ text }) => text,

  http_status: ({ request, status }) => `${request}: the library answered ${status}`,
  asked_to_wait: ({ request, status, ...wait }) =>
    `${request}: the library asked to wait (${status}) ${askedWaitText(wait)}`,
  library_unavailable: ({ error, retryInMs }) =>
    retryInMs === undefined
      ? `${error}; other requests fail, too`
      : `${error}; next request in ${formatDuration(retryInMs)}`,
  bucket_unavailable: ({ error }) => error,
  object_refused: ({ error }) => error,
  no_access_token: ({ error }) => `no access token for now: ${error}`,
  new_token_refused: () => 'the library refuses an access token that it has just issued',
  connection_waits: () => 'its connection waits',
  shutting_down: () => 'shutting down',
  store_busy: ({ store }) => `${store}: the store asked to slow down`,
  too_slow: ({ bytesPerSecond, least, windowMs }) =>
    `the file came at ${formatBytes(bytesPerSecond)}/s for ${formatDuration(windowMs)}, below TRANSFER_MIN_RATE (${formatBytes(least)}/s)`,
  tokens_unreadable: ({ connectionId, error }) => `connection ${connectionId}: ${error}`,
  no_reader: () => 'no connection can read its company now',

  skipped_by_filter: (rule) => `skipped by a filter: ${ruleText(rule)}`,
  gone: ({ inBucket }) =>
    inBucket
      ? 'no longer in the library; its objects are still in the bucket'
      : 'no longer in the library, and was never mirrored',
  unreadable_listing: ({ problem }) => `its listing cannot be read: ${problem}`,
  invalid_answer: ({ request, problem }) => `${request}: the library's answer breaks the API schema: ${problem}`,
  no_file: ({ status }) =>
    status === 'unavailable'
      ? 'the library says that no file is attached'
      : `the library gives it the status ${JSON.stringify(status)} and no file`,
  still_processing: ({ minutes }) => `still processing ${minutes} minutes after it was first seen`,
  no_link: () => 'the library says that the file is there, but gives no link to it',
  damaged_original: ({ key }) =>
    `the stored original is damaged or unreadable, and the library has only the mp4 rendition; to accept that, remove ${key} from the bucket and retry`,

  link_not_https: ({ host }) =>
    `the download link leads to ${host} by http, while LIBRARY_API_URL is https; the library must provide https links`,
  link_not_public: ({ host, where }) =>
    `the download link leads to ${where}, which is not a public address; add ${host} to DOWNLOAD_ALLOW_PRIVATE to allow it`,

  wrong_length: ({ of, expected, got, kind, ...object }) =>
    kind
      ? `has ${got} bytes, but ${expected} were ${storedOrKept(object)}${objectText({ kind, ...object })}`
      : {
          download: `wrong size: the library says ${expected} bytes, the download has ${got}`,
          object: `has ${got} bytes, but its record says ${expected}; it is fetched again`,
          record: `has ${got} bytes, but the asset has ${expected}; it is fetched again`,
        }[of],
  empty: () => 'the download is empty',
  no_length: ({ of }) => `the ${of} has no declared length, so a truncated one would not be noticed`,
  wrong_content: ({ of, got }) =>
    ({
      file: `the download is ${got}, not the file`,
      mp4: 'the download is not an MP4',
      thumbnail: `the thumbnail is ${got}, not a picture`,
      object: 'differs from the content in its record; it is fetched again',
    })[of],
  wrong_checksum: ({ checksum, expected, got, ...object }) =>
    `has ${checksum} ${got}, but ${expected} was ${storedOrKept(object)}${objectText(object)}`,
  missing_object: ({ kind, ...object }) =>
    kind ? `missing in the bucket${objectText({ kind, ...object })}` : 'is missing, and is fetched again',
  archived: ({ kind, gone }) =>
    kind
      ? `the bucket has archived it; only its length was compared${goneText(gone)}`
      : 'the bucket has archived it: it cannot be read before it is restored there',
  unreadable_object: ({ error, ...object }) =>
    object.version === undefined
      ? `cannot be read: ${error}${goneText(object.gone)}`
      : `cannot be read (${error})${objectText(object)}`,
  foreign_object: () => 'no record names it',

  too_large: ({ store }) => `${store}: the file is larger than the store accepts`,
  key_refused: ({ key, problem, other }) =>
    ({
      too_long: `store ${key}: the name is too long for this file system; shorten KEY_TEMPLATE or the path`,
      invalid: `store ${key}: this file system does not accept such a name`,
      differs_in_case: `store ${key}: ${other} differs only in case, and this file system ignores case; move the mirror to one that does not`,
    })[problem],
  store_unsupported: ({ store, error }) =>
    `${store}: the store does not support a request that this needs; run asset-mirror doctor (${error})`,

  superseded: ({ changed }) => `the library has another file: its ${new Intl.ListFormat('en').format(changed)} changed`,

  no_transcript: () => 'no transcript was available before the deadline',

  asset_problem: ({ assetId, name, reason }) => {
    const label = name ? ` (${JSON.stringify(name.slice(0, 100))})` : '';
    return `asset ${assetId ?? `without a readable id${label}`}: ${renderReason(reason)}`;
  },
  unknown_asset: () => 'not in the database; unless it was erased, a full sync of its company finds it',
  asset_company_not_readable: ({ companyId }) =>
    `this connection cannot read its company ${companyId}; if the asset has moved to another one, a full resync finds it there`,
  id_conflict: ({ companyId }) => `company ${companyId} has an asset with this id, and only that one is mirrored`,
  not_recorded: ({ error }) => `cannot be recorded: ${error}`,
  company_not_readable: ({ companyId }) => `company ${companyId}: this connection cannot read it`,
  company_skipped: ({ companyId }) => `company ${companyId} is skipped by a filter`,
  listing_incomplete: ({ companyId, cursor }) =>
    `company ${companyId}: ${
      {
        to_earlier_page:
          'the last cursor leads back to an earlier page, so the listing ended here and may be incomplete',
        refused: 'the library refused a cursor that it gave twice; the listing ended there',
      }[cursor]
    }`,
  endless_listing: ({ request, idlePages }) =>
    `${request}: the listing does not end: ${idlePages} of its pages had no new asset`,
  another_user: () => '/me: the library answers for another user than the one who connected',
  changes_held: (held) => heldText(held, `company ${held.companyId}`),
  disconnected_by_operator: () => 'disconnected by the operator',
  grant_ended: () => 'the user disconnected the app or lost access at the library; connect again',
  refresh_answer_lost: () =>
    'the answer to an earlier token refresh was lost, and the library no longer takes the old token; connect again',

  not_mirrored: ({ name, ...why }) => `${name ? `${name}: ` : ''}${notMirroredText(why)}`,
  library_not_compared: ({ connectionId, status, reason, minutes }) => {
    if (connectionId === null) return 'the library was not compared: nobody has connected';
    const fully = status === 'incomplete' ? 'fully ' : '';
    const sync = status === 'failed' ? 'failed' : `has made no progress for ${minutes} minutes`;
    const why = status === 'failed' || status === 'stalled' ? `its full sync ${sync}` : `it is ${status}`;
    return `the library was not ${fully}compared for connection ${connectionId}${because(reason) || `: ${why}`}`;
  },

  process_died: ({ attempt }) => `the process died, or lost its lease, in attempt ${attempt}`,

  several: ({ reasons, more = 0 }) =>
    [...reasons.map(renderReason), ...(more > 0 ? [`and ${more} more`] : [])].join('; '),
};

export const reasonCodes = Object.keys(sentences) as ReasonCode[];

function askedWaitText({ askedMs, retryInMs }: AskedWait): string {
  if (askedMs === null) return 'without a time';
  if (retryInMs === undefined) return `for ${formatDuration(askedMs)}`;
  return `for ${formatDuration(askedMs)}, longer than the maximum; next request after ${formatDuration(retryInMs)}`;
}

function notMirroredText({ state, reason, nextAt }: Omit<DataOf['not_mirrored'], 'name'>): string {
  switch (state) {
    case 'processing':
      return `still transcoding at the library${because(reason)}`;
    case 'failed':
      return `failed${because(reason) || ', without a reason'}`;
    case 'transferring':
      return `in transfer${because(reason)}`;
    case 'pending':
      return `not mirrored yet${because(reason) || ': waits for a free slot'}${nextAt ? `; next try ${nextAt}` : ''}`;
    default:
      return reason ? renderReason(reason) : state;
  }
}

/** The sentence of a reason, without a capital letter and a full stop. */
export function renderReason(reason: Reason): string {
  const sentence = sentences[reason.code] as ((data: Reason) => string) | undefined;
  // During an update, a newer process may have stored a code that this one does not know.
  return sentence ? sentence(reason) : reason.code;
}

/** Several reasons as one; null: there is none. `more`: how many others there were. */
export function combineReasons(found: (Reason | null)[], more = 0): Reason | null {
  const reasons = found.filter((reason) => reason !== null);
  if (reasons.length <= 1 && more === 0) return reasons[0] ?? null;
  return { code: 'several', reasons, ...(more > 0 && { more }) };
}

/** A reason as events and logs have it. */
export const reasonFields = (reason: Reason) => ({ reason: renderReason(reason), reasonCode: reason.code });

/** The sentence after a colon; empty without a reason. */
export const because = (reason: Reason | null | undefined): string => (reason ? `: ${renderReason(reason)}` : '');

/** The rule of a filter in words, such as `type videos`. */
export function ruleText({ list, field, value }: FilterRule): string {
  if (value === null) return `it has no ${field}, but the filter requires one of a list`;
  return `${field} ${value}${list === 'include' ? ' is not included' : ''}`;
}
