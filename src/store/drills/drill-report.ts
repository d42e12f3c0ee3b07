/** The report of a restore drill, as the bucket, the database and the API have it. Times are ISO 8601, durations milliseconds. */
export interface DrillReport {
  version: 1;
  id: string;
  /** `2026-01-31`, in UTC. */
  day: string;
  storage: string;
  startedAt: string;
  finishedAt: string;
  passed: boolean;
  /** Why it failed: empty if it passed. */
  failures: { code: DrillFailure; count: number }[];
  /** What the rebuild has restored. */
  restored: { assets: number; versions: number; tombstones: number; bytes: number; objects: number };
  loss: {
    /** Assets in the database whose copy was compared with what was restored. */
    compared: number;
    /** Assets among these that differ because they were changed during the drill: neither a failure nor lost. */
    inProgress: number;
    /** Time of the oldest change missing in the bucket (see `losses`); null: none. */
    oldest: string | null;
    /** Some of the assets that differ. */
    examples: { assetId: string; key: string; code: DrillFailure; since: string }[];
    /** Rows that the bucket never has. A backup of the database has them. */
    onlyInDatabase: { connections: number; webhooks: number; tokens: number; holds: number; auditEntries: number };
  };
  sample: {
    requested: number;
    assets: number;
    objects: number;
    bytes: number;
    ms: number;
    /** Superseded files that were also read. */
    versions: number;
    damaged: { assetId: string; key: string; text: string }[];
    /** Objects whose content is not known: the bucket answered with an error twice. */
    unreadable: { assetId: string; key: string; text: string }[];
  };
  secrets: { checked: number; unreadable: { name: string; reason: string }[] };
  /** How long a recovery takes: `recordsMs` was measured; `mediaMs`, to read all media, is extrapolated from the sample. */
  recovery: { recordsMs: number; mediaMs: number | null; mediaBytes: number };
  /** Records that could not be used as they are: some of them, and how many. */
  problems: { count: number; lines: string[] };
}

const failureTexts = {
  record_missing: ['record is missing or cannot be read', 'records are missing or cannot be read'],
  record_differs: ['record differs from the database', 'records differ from the database'],
  media_missing: ['media file is missing', 'media files are missing'],
  media_differs: ['media file differs from its record', 'media files differ from their records'],
  sidecar_missing: ['transcript or thumbnail is missing or differs', 'transcripts or thumbnails are missing or differ'],
  metadata_differs: ['record has older metadata than the database', 'records have older metadata than the database'],
  version_missing: [
    'superseded file is missing, differs or cannot be read',
    'superseded files are missing, differ or cannot be read',
  ],
  tombstone_missing: ['erased asset has no tombstone', 'erased assets have no tombstones'],
  record_extra: [
    'record is of an asset that the database does not have: a recovery would restore it',
    'records are of assets that the database does not have: a recovery would restore them',
  ],
  object_damaged: ['object of the sample is missing or damaged', 'objects of the sample are missing or damaged'],
  object_unreadable: ['object of the sample cannot be read', 'objects of the sample cannot be read'],
  secret_unreadable: [
    'token or secret cannot be decrypted with ENCRYPTION_KEYS',
    'tokens or secrets cannot be decrypted with ENCRYPTION_KEYS',
  ],
} as const;
export type DrillFailure = keyof typeof failureTexts;
export const drillFailures = Object.keys(failureTexts) as DrillFailure[];

/** Failures that would be losses without the database. Missing media, transcripts and thumbnails are downloaded again. */
export const losses: ReadonlySet<DrillFailure> = new Set<DrillFailure>([
  'record_missing',
  'record_differs',
  'metadata_differs',
  'version_missing',
  'tombstone_missing',
]);

/** `2 media files are missing` */
export function failureText({ code, count }: { code: DrillFailure; count: number }): string {
  return `${count} ${failureTexts[code][count === 1 ? 0 : 1]}`;
}
