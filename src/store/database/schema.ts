import type { Generated, JSONColumnType, Kysely, Selectable } from 'kysely';

/** The tables as TypeScript sees them (camelCase; bigint columns are numbers, timestamps Dates). */
export interface Schema {
  connections: ConnectionTable;
  companies: { id: string; name: string };
  access: AccessTable;
  assets: AssetTable;
  uploadParts: UploadPartTable;
  syncs: SyncTable;
  verifications: VerificationTable;
  verificationLines: VerificationLineTable;
  inventories: {
    day: string;
    owner: string | null;
    until: Date | null;
    waiting: number | null;
    writtenAt: Date | null;
  };
  sightings: { syncId: string; companyId: string; ids: string[] };
  consents: ConsentTable;
  usedStates: { state: string; until: Date };
  endedSessions: { id: string; until: Date };
  events: EventTable;
  assetHistory: HistoryTable;
  bucket: { single: Generated<boolean>; id: string };
  bucketProposal: { single: Generated<boolean>; id: string };
  uploadKeys: { key: string; assetId: string; begunAt: Generated<Date> };
  chores: { name: string; dueAt: Date };
  settings: { name: string; value: unknown };
  storeProofs: { place: string; proof: string; foundAt: Generated<Date> };
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
  parkedUntil: Date | null;
  /** How much of it the service bears at once (jobs/adaptiveLimit.ts); null: as much as is allowed. */
  adaptiveLimit: { limit: number | null; strikes: number; slowedAt: number } | null;
  settings: Generated<Record<string, unknown>>;
  /** The settings have changed, and not all of its assets were held against them since. */
  filtersPending: Generated<boolean>;
  connectedAt: Generated<Date>;
  lastSyncAt: Date | null;
  lastError: string | null;
  disconnectedAt: Date | null;
  disconnectReason: string | null;
  /** When an operator last disconnected it: links that were made before reconnect it no more. */
  linksSince: Date | null;
}
export type Connection = Selectable<ConnectionTable>;

/** What the access token of a connection is made from. */
export type Grant = Pick<Connection, 'userId' | 'status' | 'tokens' | 'tokenVersion'> & {
  /** Whether its access token still works, by the database's clock. */
  isFresh: boolean;
  /** How long nobody may ask anything for it, by the database's clock; 0 or less: it is not parked. */
  parkedMs: number;
};

interface ConsentTable {
  id: string;
  /** Sealed pair of access and refresh token. */
  tokens: string;
  /** The connection that its link was for; null: any. */
  connectionId: string | null;
  linkMadeAt: Date;
  accessExpiresAt: Date;
  createdAt: Generated<Date>;
  nextAt: Date;
}
export type Consent = Selectable<ConsentTable>;

interface AccessTable {
  connectionId: string;
  companyId: string;
  /** Epoch milliseconds of the newest upload date up to which everything listed is in the records. */
  mark: number | null;
  gainedAt: Generated<Date>;
  lostAt: Date | null;
}

export type AssetState = 'pending' | 'processing' | 'transferring' | 'mirrored' | 'unavailable' | 'failed' | 'gone';
export type TranscriptState = 'none' | 'pending' | 'mirrored' | 'no_speech' | 'gave_up';
export type ThumbnailState = 'none' | 'pending' | 'mirrored' | 'gave_up';

/** What is in the bucket for an asset, as checked there after the transfer. */
export interface Media {
  key: string;
  bytes: number;
  variant: 'original' | 'mp4';
  checksums: Record<string, string>;
  etag: string | null;
  /** Of the source: what its listing and its detail must still say for this to be the same file. */
  version: string;
}

/** The states of transcript and thumbnail, and the sidecars in the bucket. */
export interface SidecarStates {
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnailState: ThumbnailState;
  thumbnail: { key: string; bytes: number } | null;
  /** What was stored of them, by key. */
  sidecarFiles: Record<string, Kept>;
}

/** A sidecar as it was stored. */
export interface Kept {
  bytes: number;
  etag: string | null;
  crc32: string;
}

/** An upload in parts that was begun: where it goes, of which version of the file it is, and where that comes from. */
export interface UploadUnderWay {
  id: string;
  key: string;
  bytes: number;
  partBytes: number;
  variant: Media['variant'];
  version: string;
  /** The strong ETag of the source, which every part was asked for with. */
  etag: string;
}

interface UploadPartTable {
  assetId: string;
  number: number;
  bytes: number;
  etag: string;
  crc32: string;
  storedAt: Generated<Date>;
}
export type UploadPart = Omit<Selectable<UploadPartTable>, 'assetId' | 'storedAt'>;

interface AssetTable {
  id: string;
  /** Null: read from the bucket, and nobody who can read its company has connected since. */
  connectionId: string | null;
  companyId: string;
  projectId: string | null;
  assetType: string | null;
  name: string | null;
  size: number | null;
  uploadDate: number | null;
  listed: Record<string, unknown>;
  /** How often a listing has changed the row: a worker that began before must look again. */
  revision: Generated<number>;
  detail: Record<string, unknown> | null;
  state: AssetState;
  reason: string | null;
  /** Which setting of its connection leaves it out: it is pending, never mirrored, and nothing is done for it. */
  skipped: string | null;
  attempts: number;
  /** How often in a row it was put off without an attempt being spent. */
  waits: Generated<number>;
  processingSince: Date | null;
  nextAt: Date | null;
  queuedAt: Date | null;
  lease: number;
  leaseUntil: Date | null;
  media: Media | null;
  bytes: number | null;
  recordKey: string | null;
  mirroredAt: Date | null;
  /** When it last came to be mirrored, or gone, and was neither before; null: long ago. The database notes it. */
  settledAt: Generated<Date | null>;
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnail: { key: string; bytes: number } | null;
  thumbnailState: ThumbnailState;
  /** The sidecars in the bucket, by key. */
  sidecarFiles: Generated<Record<string, Kept>>;
  /** When the media's bytes were last held against their checksum. */
  verifiedAt: Date | null;
  /** Keys that another version of it has, or may have: removed once the record of this one is written. */
  superseded: Generated<string[]>;
  upload: UploadUnderWay | null;
  firstSeenAt: Generated<Date>;
  /** The run that last saw something new in it. */
  syncId: string | null;
}
export type Asset = Selectable<AssetTable>;
/** One that a connection is in charge of, as those that workers get. */
export type OwnedAsset = Asset & {
  connectionId: string;
  /** When its lease began. */
  leasedAt: Date;
  /** Those of its connection. */
  settings: Record<string, unknown>;
};

export type SyncMode = 'incremental' | 'full';
export interface SyncScope {
  since?: number | undefined;
  companyId?: string | undefined;
  projectId?: string | undefined;
  assetType?: string | undefined;
  assetIds?: string[] | undefined;
  /** Whatever the listing lacks is gone, however much it is: an operator has looked. */
  acceptGone?: true | undefined;
}
/** Where an interrupted run goes on. */
export interface SyncPosition {
  /** Companies whose listing is complete in this run. */
  done?: string[];
  companyId?: string;
  cursor?: string | null;
  newest?: number | null;
  /** When its listing began, by the service's clock (epoch milliseconds). */
  began?: number;
  /** Its listing is complete; what is missing from it is still to be looked at. */
  listed?: boolean;
  /** Items of that company without a readable id, by the keys of their records. */
  unreadable?: string[];
  /** The assets that its listing had, and its pages without a new one. */
  progress?: { assets: number; idlePages: number };
}

interface SyncTable {
  id: string;
  connectionId: string;
  mode: SyncMode;
  scope: JSONColumnType<SyncScope>;
  status: 'waiting' | 'running' | 'done' | 'failed';
  position: Generated<SyncPosition>;
  pages: Generated<number>;
  seen: Generated<number>;
  new: Generated<number>;
  changed: Generated<number>;
  gone: Generated<number>;
  /** The bucket is compared behind it, and what is missing there made again. */
  withBucket: Generated<boolean>;
  /** That comparison, once the run has ended; it may be forgotten before the run is. */
  verificationId: Generated<string | null>;
  error: string | null;
  /** Its trace (W3C Trace Context), where there is one. */
  traceparent: string | null;
  requestedAt: Generated<Date>;
  startedAt: Date | null;
  finishedAt: Date | null;
}
export type Sync = Selectable<SyncTable>;

export interface VerificationOptions {
  /** Reads every object and compares its checksum. */
  deep?: boolean | undefined;
  /** Has what is missing or differs fetched or written again. */
  repair?: boolean | undefined;
  /** Keeps a line for what is as it should be, too. */
  all?: boolean | undefined;
  /** Writes the day's inventory at the end. */
  inventory?: boolean | undefined;
  /** Asked for by the mirror itself, behind a listing: records and bucket only, and of strangers only the number is kept. */
  routine?: true | undefined;
}

export const verificationPhases = ['library', 'objects', 'assets', 'repair', 'inventory', 'end'] as const;
export type VerificationPhase = (typeof verificationPhases)[number];

/** Where an interrupted verification goes on. */
export interface VerificationPosition {
  phase?: VerificationPhase;
  /** Full syncs that it waits for, by connection. */
  syncs?: Record<string, string>;
  /** What has settled since (epoch milliseconds) is compared behind the rest: what is listed may not have it yet. */
  since?: number;
  /** The last key that was compared. */
  key?: string;
  /** The last asset that was looked at. */
  assetId?: string;
  /** How often in a row it was put off here. */
  failures?: number;
}

export interface VerificationCounts {
  lines: number;
  /** Objects as they should be. */
  same: number;
  missing: number;
  foreign: number;
  different: number;
  errors: number;
  /** Told, and no difference: the library itself has no file to give (yet). */
  absent: number;
  /** Told, and no difference: the settings leave them out. */
  skipped: number;
  /** Changed while they were looked at: nothing is said of them. */
  moving: number;
  /** Assets whose media was compared, of how many. */
  assets: number;
  assetsTotal: number;
  bytesRead: number;
  /** Assets that were asked for again. */
  repaired: number;
}

interface VerificationTable {
  id: string;
  connectionId: string | null;
  options: JSONColumnType<VerificationOptions>;
  status: 'waiting' | 'running' | 'done' | 'failed';
  position: Generated<VerificationPosition>;
  counts: Generated<Partial<VerificationCounts>>;
  error: string | null;
  owner: string | null;
  until: Date | null;
  requestedAt: Generated<Date>;
  startedAt: Date | null;
  finishedAt: Date | null;
}
export type Verification = Selectable<VerificationTable>;

export type ObjectKind = 'media' | 'record' | 'transcript' | 'thumbnail';

/**
 * What mends an object: `check` has the media looked at and fetched if need be, `fetch` has it fetched whatever the store
 * says of it, `write` has what lies beside it written again.
 */
export type Remedy = 'check' | 'fetch' | 'write';

interface VerificationLineTable {
  verificationId: string;
  number: number;
  mark: '=' | '-' | '+' | '*' | '!';
  key: string | null;
  assetId: string | null;
  kind: ObjectKind | null;
  remedy: Remedy | null;
  text: string | null;
  difference: boolean;
}
export type VerificationLine = Omit<Selectable<VerificationLineTable>, 'verificationId' | 'number'>;

/** What came of a worker's lease of an asset. */
export const outcomes = [
  'mirrored',
  'processing',
  'unavailable',
  'failed',
  'again',
  'started over',
  'gave up',
  'skipped',
  'handed over',
] as const;
export type Outcome = (typeof outcomes)[number];

/** What a worker did, or met, so many ms after its lease began. */
export interface Step {
  ms: number;
  did:
    | 'asked'
    | 'found in the bucket'
    | 'began'
    | 'went on'
    | 'renewed the link'
    | 'part failed'
    | 'parts stored'
    | 'stored'
    | 'thumbnail'
    | 'transcript'
    | 'recorded';
  /** What the service said of it; where an sidecar stands. */
  status?: string | null;
  variant?: Media['variant'];
  bytes?: number | null;
  /** Of so many bytes, or parts. */
  of?: number;
  parts?: number;
  part?: number;
  checksums?: Record<string, string>;
  reason?: string;
}

export const historyKinds = ['listed', 'attempt', 'lost', 'skipped', 'unskipped', 'repaired'] as const;

interface HistoryTable {
  id: Generated<number>;
  assetId: string;
  at: Generated<Date>;
  kind: (typeof historyKinds)[number];
  /** The run that last saw something new in the asset. */
  syncId: string | null;
  data: Generated<{
    /** Of a listing: what it was, which fields are others than before, and what was decided. */
    news?: 'new' | 'changed';
    fields?: string[];
    state?: AssetState;
    due?: boolean;
    /** Of a lease. */
    outcome?: Outcome;
    ms?: number;
    steps?: Step[];
    /** Steps that are not told. */
    more?: number;
    nextAt?: string;
    reason?: string | null;
    /** Of settings: the rule. */
    rule?: string;
    /** Of a verification: what was to be made again. */
    objects?: string[];
  }>;
}
export type HistoryEntry = Pick<Selectable<HistoryTable>, 'at' | 'kind' | 'syncId' | 'data'>;

interface EventTable {
  id: Generated<number>;
  at: Generated<Date>;
  kind: string;
  connectionId: string | null;
  assetId: string | null;
  data: Generated<Record<string, unknown>>;
  /** The transaction that wrote it. */
  xact: Generated<string>;
}
export type Event = Omit<Selectable<EventTable>, 'xact'>;
