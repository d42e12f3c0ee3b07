import type { Generated, Kysely, Selectable } from 'kysely';
import type { HeldChanges, HeldKind } from '../../floor/held-changes.ts';
import type { ListingDoubt, Reason } from '../../floor/reason-codes.ts';
import type { Role, SignInMethod } from '../../floor/roles.ts';
import type { Tags } from '../../floor/tags.ts';

/**
 * Tables and columns of typed queries (camelCase; bigint columns are numbers, timestamps Dates). initial-schema.ts has all, and says
 * what they are for.
 */
export interface Schema {
  connections: ConnectionTable;
  companies: { id: string; name: string };
  access: Access;
  assets: Asset;
  assetVersions: AssetVersion;
  uploadParts: UploadPart & { assetId: string };
  syncs: Sync;
  verifications: VerificationTable;
  sightings: { syncId: string; companyId: string; ids: string[] };
  consents: ConsentTable;
  usedStates: { state: string; until: Date };
  sessions: SessionTable;
  apiTokens: ApiTokenTable;
  events: EventTable;
  assetHistory: HistoryEntry & { id: number; assetId: string };
  settings: { name: string; value: unknown };
}

export type Database = Kysely<Schema>;

export type ConnectionStatus = 'active' | 'paused' | 'disconnected';

interface ConnectionTable {
  id: string;
  userId: string;
  userName: string;
  userEmail: string;
  status: ConnectionStatus;
  tokens: string | null;
  tokenVersion: Generated<number>;
  accessExpiresAt: Date | null;
  refreshOwner: string | null;
  refreshUntil: Date | null;
  refreshUnansweredAt: Date | null;
  syncOwner: string | null;
  syncUntil: Date | null;
  delayedUntil: Date | null;
  delayedReason: Reason | null;
  /** The adaptive concurrency of the connection (pacing/concurrency-limit.ts). */
  adaptiveLimit: Generated<{ limit: number; limitAtObjection: number | null; strikes: number; slowedAt: number }>;
  settings: Generated<Record<string, unknown>>;
  tags: Generated<Tags>;
  filtersRequested: Generated<number>;
  filtersApplied: Generated<number>;
  connectedAt: Generated<Date>;
  lastSyncAt: Date | null;
  /** When a sync last found new or changed assets. */
  newsAt: Date | null;
  scheduledSyncAt: Generated<Date>;
  scheduledFullAt: Generated<Date>;
  lastError: Reason | null;
  linksSince: Date | null;
}
export type Connection = Selectable<ConnectionTable>;

/** The tokens of a connection, sealed, and whether they can be used now. */
export type StoredTokens = Pick<Connection, 'userId' | 'status' | 'tokens' | 'tokenVersion'> & {
  /** The access token still works, by the database's clock. */
  isFresh: boolean;
  /** How long the connection must wait, by the database's clock; 0 or less: it need not wait. */
  delayMs: number;
};

interface ConsentTable {
  id: string;
  /** Sealed pair of access and refresh token. */
  tokens: string;
  /** The connection that its link was for; null: any. */
  connectionId: string | null;
  tags: Tags | null;
  linkMadeAt: Date;
  accessExpiresAt: Date;
  createdAt: Generated<Date>;
  nextAt: Date;
}
export type Consent = Selectable<ConsentTable>;

interface Access {
  connectionId: string;
  companyId: string;
  /** High-water mark: epoch milliseconds of the upload date up to which everything is recorded. */
  highWaterMark: number | null;
  /** `since`: ISO 8601. */
  held: Partial<Record<HeldKind, HeldChanges & { since: string }>>;
  lostAt: Date | null;
}

export type AssetState = 'pending' | 'processing' | 'transferring' | 'mirrored' | 'unavailable' | 'failed' | 'gone';
export type TranscriptState = 'none' | 'pending' | 'mirrored' | 'no_speech' | 'gave_up';
export type ThumbnailState = 'none' | 'pending' | 'mirrored' | 'gave_up';

/** The media of an asset in the bucket, as checked there after the transfer. */
export interface Media {
  key: string;
  bytes: number;
  variant: 'original' | 'mp4';
  /** Lower-case hex: `crc32`, and where known `md5` and `sha256`, the content hash. */
  checksums: Record<string, string>;
  etag: string | null;
  /** The version in the library: if listing and detail have another one, the file was replaced. Empty: to be fetched again. */
  version: string;
}

/** The states of transcript and thumbnail, and the sidecars in the bucket. */
export interface SidecarStates {
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnailState: ThumbnailState;
  thumbnail: { key: string; bytes: number } | null;
  /** Stored sidecars, by key. */
  sidecarFiles: Record<string, StoredSidecar>;
}

/** A sidecar as it was stored. */
export interface StoredSidecar {
  bytes: number;
  etag: string | null;
  crc32: string;
  /** The content hash; undefined: not known yet. */
  sha256?: string | undefined;
}

/** An unfinished upload in parts, and the version of its file. */
export interface UploadUnderWay {
  id: string;
  key: string;
  bytes: number;
  partBytes: number;
  checksum?: 'sha256' | 'crc32' | undefined;
  variant: Media['variant'];
  version: string;
  /** The strong ETag of the source, with which every part was requested. */
  etag: string;
}

export interface UploadPart {
  number: number;
  bytes: number;
  etag: string;
  crc32: string;
  blocks: string[] | null;
}

/** Prefix of the ids under which items of a listing without a readable id are recorded. */
export const unreadablePrefix = 'unreadable:';

/** An asset as a page of the listing had it, or the reason why it cannot be read. */
export interface ListedAsset {
  id: string;
  projectId: string | null;
  assetType: string | null;
  name: string | null;
  size: number | null;
  uploadDate: number | null;
  /** The listed asset without signed links; `hasThumbnail` replaces the link to the thumbnail. */
  listed: Record<string, unknown>;
  /** Why the asset breaks the API's schema. */
  problem?: Reason;
}

export interface Asset extends Omit<ListedAsset, 'problem'>, SidecarStates {
  connectionId: string | null;
  companyId: string;
  revision: number;
  detail: Record<string, unknown> | null;
  state: AssetState;
  reason: Reason | null;
  skipped: boolean;
  attempts: number;
  followUps: number;
  waits: number;
  processingSince: Date | null;
  nextAt: Date | null;
  queuedAt: Date | null;
  lease: number;
  leaseUntil: Date | null;
  media: Media | null;
  bytes: number | null;
  recordKey: string | null;
  /** When the current file was mirrored; null: it is not, or it is being replaced. */
  mirroredAt: Date | null;
  keepingAt: Date | null;
  goneAt: Date | null;
  /** When it last became mirrored or gone, written by a trigger; null: never. */
  settledAt: Date | null;
  verifiedAt: Date | null;
  retainedUntil: Date | null;
  unverifiableAt: Date | null;
  superseded: string[];
  earlierKeys: string[];
  inCopy: boolean;
  upload: UploadUnderWay | null;
  firstSeenAt: Date;
  syncId: string | null;
}
/** An asset with its connection, as workers get it. */
export type OwnedAsset = Asset & {
  connectionId: string;
  /** When its lease began. */
  leasedAt: Date;
  /** The settings of its connection. */
  settings: Record<string, unknown>;
};

/** An object of a version. */
export interface VersionFile {
  role: 'media' | 'record' | 'captions' | 'text' | 'transcript' | 'thumbnail';
  /** Its key while the version was the current one. */
  key: string;
  /** Its key now. */
  at: string;
  /** Its version at that key, in a bucket with versions. */
  versionId?: string | undefined;
  bytes: number;
  etag: string | null;
  /** Lower-case hex; undefined only of sidecars after a rebuild. */
  crc32?: string | undefined;
  /** The content hash; undefined: not known. */
  sha256?: string | undefined;
}

/** A superseded file of an asset that is kept, with its sidecars and its record. */
export interface AssetVersion {
  assetId: string;
  replacedAt: Date;
  companyId: string;
  projectId: string | null;
  mirroredAt: Date;
  reason: Reason;
  media: Media;
  files: VersionFile[];
  /** The bytes of all its files. */
  bytes: number;
}

export type SyncMode = 'incremental' | 'full';
/** The fields of a scope that accept held changes. The others are limits. */
export const acceptNames = ['acceptGone', 'acceptReplaced', 'acceptRemoved'] as const;
export interface SyncScope {
  since?: number | undefined;
  companyId?: string | undefined;
  projectId?: string | undefined;
  assetType?: string | undefined;
  assetIds?: string[] | undefined;
  /** An operator has confirmed that everything missing from the listing is gone. */
  acceptGone?: true | undefined;
  /** An operator has confirmed that files in the library may replace the stored ones. */
  acceptReplaced?: true | undefined;
  /** An operator has confirmed that GONE_RETENTION may remove what is due. */
  acceptRemoved?: true | undefined;
}
/** Where an interrupted sync continues in a company. */
export interface CompanyPosition {
  /** Nothing is left to do. */
  done?: true;
  cursor?: string | null;
  newest?: number | null;
  /** When its listing began, by the library's clock (epoch milliseconds). */
  began?: number;
  /** When its last page was recorded (epoch milliseconds). */
  recordedAt?: number;
  /** It has begun anew, because the library no longer knew its cursor: once, or it might never end. */
  restarted?: true;
  /** Its listing is complete; missing assets are still to be checked. */
  listed?: boolean;
  /** Why its listing may have ended too early. */
  doubt?: ListingDoubt | undefined;
  /** Ids of the records of its items without a readable id. */
  unreadable?: string[];
  /** How many assets its listing had, and how many pages had no new one. */
  progress?: { assets: number; idlePages: number };
  waits?: Waits | undefined;
}

/** Waits in a row that the library has asked for, without a page or another answer in between. `ms`: all together. */
export interface Waits {
  count: number;
  ms: number;
  /** The last one. */
  reason: Reason;
}

export interface Sync {
  id: string;
  connectionId: string;
  mode: SyncMode;
  scope: SyncScope;
  status: 'waiting' | 'running' | 'done' | 'failed';
  /** By company; companies that were not begun are missing. */
  position: Record<string, CompanyPosition>;
  pages: number;
  seen: number;
  new: number;
  changed: number;
  gone: number;
  withBucket: boolean;
  /** Null until the sync has ended. The verification may be deleted before the sync. */
  verificationId: string | null;
  error: Reason | null;
  held: Reason | null;
  traceparent: string | null;
  requestedAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
}

export interface VerificationOptions {
  /** Reads every object and compares its checksum. */
  deep?: boolean | undefined;
  /** Fetches or writes again what is missing or differs. */
  repair?: boolean | undefined;
  /** Keeps a line for correct objects, too. */
  all?: boolean | undefined;
  /** Writes the day's inventory at the end. */
  inventory?: boolean | undefined;
  /** Only counts objects that no record names. */
  ignoreForeign?: boolean | undefined;
  /** Requested by the mirror itself: compares only database and bucket, and only counts foreign objects. */
  scheduled?: true | undefined;
}

export const verificationPhases = ['library', 'objects', 'assets', 'versions', 'repair', 'inventory', 'end'] as const;
export type VerificationPhase = (typeof verificationPhases)[number];

/** Where an interrupted verification continues. */
export interface VerificationPosition {
  phase?: VerificationPhase;
  /** Full syncs that it waits for, by connection. */
  syncs?: Record<string, string>;
  /** Assets settled since (epoch milliseconds) are compared last: the listing of the bucket may not have them yet. */
  since?: number;
  /** The last key that was compared. */
  key?: string;
  /** The last asset that was checked. */
  assetId?: string;
  /** The last of its superseded files that was checked (epoch milliseconds). */
  replacedAt?: number;
  /** How often in a row it was postponed at this position. */
  failures?: number;
}

export interface VerificationCounts {
  lines: number;
  /** Correct objects. */
  same: number;
  missing: number;
  foreign: number;
  different: number;
  errors: number;
  /** Reported, but no difference: the library has no file (yet). */
  absent: number;
  /** Reported, but no difference: a filter skips them. */
  skipped: number;
  /** Correct objects that are archived, so that only their length was compared. */
  archived: number;
  /** Changed while they were compared: not reported. */
  moving: number;
  /** Assets whose media was compared, of how many. */
  assets: number;
  assetsTotal: number;
  bytesRead: number;
  /** Assets that were made due for repair. */
  repaired: number;
}

interface VerificationTable {
  id: string;
  connectionId: string | null;
  options: VerificationOptions;
  status: 'waiting' | 'running' | 'done' | 'failed';
  position: Generated<VerificationPosition>;
  counts: Generated<Partial<VerificationCounts>>;
  error: Reason | null;
  owner: string | null;
  until: Date | null;
  requestedAt: Generated<Date>;
  startedAt: Date | null;
  finishedAt: Date | null;
}
export type Verification = Selectable<VerificationTable>;

export type ObjectKind = 'media' | 'record' | 'transcript' | 'thumbnail';

/** What repairs an object: `check` fetches the media if needed, `fetch` fetches it in any case, `write` writes sidecars again. */
export type Remedy = 'check' | 'fetch' | 'write';

/** What a verification found about an object. */
export interface VerificationLine {
  mark: '=' | '-' | '+' | '*' | '!';
  key: string | null;
  assetId: string | null;
  kind: ObjectKind | null;
  remedy: Remedy | null;
  reason: Reason | null;
  difference: boolean;
}

/** How a worker's lease of an asset ended. */
export type LeaseOutcome =
  | 'mirrored'
  | 'processing'
  | 'unavailable'
  | 'failed'
  | 'again'
  | 'started_over'
  | 'gave_up'
  | 'skipped'
  | 'handed_over';

/** A step of a worker, `ms` after its lease began. */
export interface Step {
  ms: number;
  did:
    | 'library_answered'
    | 'set_aside'
    | 'found_in_bucket'
    | 'began'
    | 'resumed'
    | 'link_renewed'
    | 'part_failed'
    | 'parts_stored'
    | 'version_kept'
    | 'stored'
    | 'thumbnail'
    | 'transcript'
    | 'recorded';
  /** The status in the library, or of a sidecar. */
  status?: string | null;
  variant?: Media['variant'];
  bytes?: number | null;
  /** Total of bytes or parts. */
  of?: number;
  parts?: number;
  part?: number;
  checksums?: Record<string, string>;
  reason?: Reason;
}

export interface HistoryEntry {
  at: Date;
  kind: 'listed' | 'attempt' | 'lost' | 'skipped' | 'unskipped' | 'repaired';
  /** The last sync that found the asset new or changed. */
  syncId: string | null;
  data: {
    /** Of a listing: whether the asset was new or changed, which fields have changed, and the decision. */
    news?: 'new' | 'changed';
    fields?: string[];
    state?: AssetState;
    due?: boolean;
    /** The library has another file of the asset: it is set aside at first, and released later. */
    replacement?: 'set_aside' | 'released';
    /** Of a lease. */
    outcome?: LeaseOutcome;
    ms?: number;
    steps?: Step[];
    /** How many more steps there were. */
    more?: number;
    nextAt?: string;
    reason?: Reason;
    /** Of a verification: the objects to be repaired. */
    objects?: string[];
  };
}

interface EventTable {
  id: Generated<number>;
  at: Generated<Date>;
  kind: string;
  connectionId: string | null;
  assetId: string | null;
  data: Generated<Record<string, unknown>>;
  xact: Generated<string>;
}
export type Event = Omit<Selectable<EventTable>, 'xact'>;

interface SessionTable {
  id: string;
  /** SHA-256 of the secret that the browser or terminal keeps. */
  hash: string;
  subject: string;
  name: string;
  role: Role;
  method: SignInMethod;
  address: string;
  userAgent: string | null;
  givenBy: string;
  createdAt: Generated<Date>;
  lastUsedAt: Generated<Date>;
  endsAt: Date;
}
export type Session = Selectable<SessionTable>;

interface ApiTokenTable {
  id: string;
  name: string;
  role: Role;
  /** SHA-256 of the token. */
  hash: string;
  /** The first characters of the token, to recognise it. */
  beginning: string;
  createdBy: string;
  createdAt: Generated<Date>;
  expiresAt: Date;
  lastUsedAt: Date | null;
}
export type ApiToken = Selectable<ApiTokenTable>;
