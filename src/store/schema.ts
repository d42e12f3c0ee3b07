import type { Generated, JSONColumnType, Kysely, Selectable } from 'kysely';

/** The tables as TypeScript sees them (camelCase; bigint columns are numbers, timestamps Dates). */
export interface Schema {
  connections: ConnectionTable;
  companies: { id: string; name: string };
  access: AccessTable;
  assets: AssetTable;
  uploadParts: UploadPartTable;
  syncs: SyncTable;
  usedStates: { state: string; until: Date };
  events: EventTable;
  bucket: { single: Generated<boolean>; id: string };
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
  settings: Generated<Record<string, unknown>>;
  connectedAt: Generated<Date>;
  lastSyncAt: Date | null;
  lastError: string | null;
  disconnectedAt: Date | null;
  disconnectReason: string | null;
}
export type Connection = Selectable<ConnectionTable>;

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
}
export type UploadPart = Omit<Selectable<UploadPartTable>, 'assetId'>;

interface AssetTable {
  id: string;
  connectionId: string;
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
  attempts: number;
  /** How often in a row it was put off without an attempt being spent. */
  waits: Generated<number>;
  processingSince: Date | null;
  nextAt: Date | null;
  queuedAt: Date | null;
  turn: number;
  turnUntil: Date | null;
  media: Media | null;
  bytes: number | null;
  recordKey: string | null;
  mirroredAt: Date | null;
  transcriptState: TranscriptState;
  transcriptKeys: string[] | null;
  transcriptDeadline: Date | null;
  thumbnail: { key: string; bytes: number } | null;
  thumbnailState: ThumbnailState;
  /** Keys that another version of it has, or may have: removed once the record of this one is written. */
  outdated: Generated<string[]>;
  upload: UploadUnderWay | null;
  firstSeenAt: Generated<Date>;
}
export type Asset = Selectable<AssetTable>;

export type SyncMode = 'incremental' | 'full';
export interface SyncScope {
  since?: number | undefined;
  companyId?: string | undefined;
  projectId?: string | undefined;
  assetType?: string | undefined;
  assetIds?: string[] | undefined;
}
/** Where an interrupted run goes on. */
export interface SyncPosition {
  /** Companies whose listing is complete in this run. */
  done?: string[];
  companyId?: string;
  cursor?: string | null;
  newest?: number | null;
  /** Items of that company without a readable id, by the keys of their records. */
  unreadable?: string[];
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
  error: string | null;
  requestedAt: Generated<Date>;
  startedAt: Date | null;
  finishedAt: Date | null;
}
export type Sync = Selectable<SyncTable>;

interface EventTable {
  id: Generated<number>;
  at: Generated<Date>;
  kind: string;
  connectionId: string | null;
  assetId: string | null;
  data: Generated<Record<string, unknown>>;
}
