import { type ComparedObject, goneText, objectText, storedOrKept } from './compared-object.ts';
import { type Held, heldText } from './held-changes.ts';
import { formatBytes, formatDuration } from './units.ts';

/** Milliseconds that the library asked to wait; null: it gave no time. `retryInMs`: the maximum, only if `askedMs` is longer. */
export interface AskedWait {
  askedMs: number | null;
  retryInMs?: number;
}

/**
 * The rule of a filter that skips an asset: its `field` has a value that `exclude` lists, or one that `include` does not list.
 * Null: it has none, but `include` requires one.
 */
export interface FilterRule {
  list: 'include' | 'exclude';
  field: 'company' | 'project' | 'type';
  value: string | null;
}

/**
 * The codes of reasons, each with its data. Behaviour depends on codes and data only, never on the sentence.
 * docs/reference/api.md describes them for clients of the API.
 */
interface DataOf {
  /** Any other error: the message of the network, the library, the store or the database. */
  error: { text: string };

  /** The library answered a request with an error. */
  http_status: { request: string; status: number };
  /** The library asked to wait (429, or 503 with Retry-After). */
  asked_to_wait: { request: string; status: number } & AskedWait;
  /** The library does not answer, or only with errors. With `retryInMs`, only one connection waits, for that time. */
  library_unavailable: { error: string; retryInMs?: number };
  /** The bucket accepts nothing at present. */
  bucket_unavailable: { error: string };
  /** The bucket does not accept this object at present. */
  object_refused: { error: string };
  /** The tokens of the connection cannot be refreshed at present. */
  no_access_token: { error: string };
  /** The library refuses an access token that it has just issued. */
  new_token_refused: object;
  connection_waits: object;
  shutting_down: object;
  /** The store asked to slow down. */
  store_busy: { store: string };
  /** A file came more slowly than TRANSFER_MIN_RATE (`least`), as a mean over `windowMs`. */
  too_slow: { bytesPerSecond: number; least: number; windowMs: number };
  /** The tokens of the connection cannot be decrypted. */
  tokens_unreadable: { connectionId: string; error: string };
  no_reader: object;

  skipped_by_filter: FilterRule;
  gone: { inBucket: boolean };
  unreadable_listing: { problem: string };
  /** An answer of the library breaks the API schema. */
  invalid_answer: { request: string; problem: string };
  /** `status`: as the library gives it. */
  no_file: { status: string | null };
  still_processing: { minutes: number };
  no_link: object;

  link_not_https: { host: string };
  /** `where`: the host, followed by its IP address if the host is a name. */
  link_not_public: { host: string; where: string };

  /**
   * Length of a download against the library, of an object against its record, or of a record against its asset. With `kind`: of
   * an object against the database.
   */
  wrong_length: { of: 'download' | 'object' | 'record'; expected: number; got: number } & Partial<ComparedObject>;
  empty: object;
  /** Neither a length nor a chunked end. */
  no_length: { of: 'file' | 'thumbnail' };
  /** `got`: a media type or `an error page`; null: unknown. */
  wrong_content: { of: 'file' | 'mp4' | 'thumbnail' | 'object'; got: string | null };
  /** An object has another checksum than the database. */
  wrong_checksum: { checksum: 'CRC-32' | 'SHA-256'; expected: string; got: string } & ComparedObject;
  /** Without `kind`: a rebuild found no media at the key of its record. */
  missing_object: Partial<ComparedObject>;
  /** The bucket has an object in a storage class that cannot be read without a restore. With `kind`: its length was compared. */
  archived: Partial<ComparedObject>;
  /** A verification could not read an object. */
  unreadable_object: { error: string } & ComparedObject;
  /** No record names this object. */
  foreign_object: object;

  too_large: { store: string };
  /** `other`: the key that differs only in case. */
  key_refused: { key: string; problem: 'too_long' | 'invalid' | 'differs_in_case'; other?: string };
  store_unsupported: { store: string; error: string };

  /** Why a version was superseded: by a file with another size or upload date, or another name. */
  superseded: { changed: ('size' | 'upload date' | 'name')[] };

  no_transcript: object;

  /** What a sync could not do with an asset. `assetId`: null if it is unreadable; then `name` is its name, if it has one. */
  asset_problem: { assetId: string | null; name?: string | null; reason: Reason };
  unknown_asset: object;
  /** The connection cannot read the company of the asset. */
  asset_company_not_readable: { companyId: string };
  /** Another company has an asset with the same id. */
  id_conflict: { companyId: string };
  /** The database refused the values of the asset. */
  not_recorded: { error: string };
  company_not_readable: { companyId: string };
  company_skipped: { companyId: string };
  /** The last cursor led back to an earlier page, or the library refused it after it had given it twice. */
  listing_incomplete: { companyId: string; cursor: 'to_earlier_page' | 'refused' };
  /** `idlePages`: pages without a new asset. */
  endless_listing: { request: string; idlePages: number };
  /** `/me` answers for another user than the one who connected. */
  another_user: object;
  /** Changes of a company wait until an operator accepts them. */
  changes_held: Held;
  disconnected_by_operator: object;
  /** By the user, or by the library. */
  grant_ended: object;
  /** The library no longer takes the token, and the answer that had the next one was lost. */
  refresh_answer_lost: object;

  /** A verification found an asset that is not in the bucket. `nextAt`: if the next try is later. */
  not_mirrored: {
    name: string | null;
    state: 'skipped' | 'gone' | 'unavailable' | 'processing' | 'failed' | 'transferring' | 'pending';
    reason: Reason | null;
    nextAt?: string;
  };
  /**
   * A verification could not list the library for a connection, or not all of it. `status`: of the full sync, or of the connection
   * if it has none. `minutes`: how long a stalled sync made no progress.
   */
  library_not_compared: {
    connectionId: string;
    status: 'incomplete' | 'failed' | 'stalled' | 'active' | 'paused' | 'disconnected' | 'gone';
    reason?: Reason;
    minutes?: number;
  };

  /** The last attempt of a drill did not end. */
  process_died: { attempt: number };

  /** `more`: how many others there were. */
  several: { reasons: Reason[]; more?: number };
}

export type ReasonCode = keyof DataOf;
/**
 * Why an asset is not mirrored, or is tried again; why a connection waits or is disconnected; what a sync could not do; why a
 * version was superseded; what a verification found; or why a verification or a drill failed.
 */
export type Reason = { [Code in ReasonCode]: { code: Code } & DataOf[Code] }[ReasonCode];
export type SkippedByFilter = Extract<Reason, { code: 'skipped_by_filter' }>;

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
