import type { ComparedObject } from './compared-object.ts';
import type { Held } from './held-changes.ts';

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

/** Why a listing may have ended too early: the last cursor led back, or the library refused it after it had given it twice. */
export type ListingDoubt = 'to_earlier_page' | 'refused';

/**
 * The codes of reasons, each with its data. Behaviour depends on codes and data only, never on the sentence.
 * docs/reference/api.md describes them for clients of the API.
 */
export interface DataOf {
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
  /** The stored original is damaged or unreadable, and the library has only the mp4 rendition. */
  damaged_original: { key: string };

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
  listing_incomplete: { companyId: string; cursor: ListingDoubt };
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
   * if it has none; `not_connected`: there is no connection. `minutes`: how long a stalled sync made no progress.
   */
  library_not_compared: {
    connectionId: string | null;
    status: 'incomplete' | 'failed' | 'stalled' | 'active' | 'paused' | 'disconnected' | 'gone' | 'not_connected';
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
