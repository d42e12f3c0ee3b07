import { createHash } from 'node:crypto';

/** Keys in the bucket. All functions are pure: the same asset always gets the same key. */

/** Prefix of the mirror's own objects; no asset's key begins with it. */
export const ours = '_mirror/';

/** Contains the tombstones of erased assets. */
export const tombstones = `${ours}tombstones/`;

/** `hash`: of the asset's id. */
export const tombstoneKey = (hash: string) => `${tombstones}${hash}.json`;

/** Contains the mirror id. */
export const bucketIdKey = `${ours}id`;

/** `day`: `2026-01-31`. */
export const inventoryPrefix = (day: string) => `${ours}inventory/${day}/`;

/** Contains the chain of manifests. */
export const manifests = `${ours}manifests/`;
export const manifestKey = (number: number) => `${manifests}${String(number).padStart(8, '0')}.json`;
/** The reverse of `manifestKey`; undefined for other keys. */
export function numberOf(key: string): number | undefined {
  const number = Number.parseInt(key.slice(manifests.length), 10);
  return number > 0 && key === manifestKey(number) ? number : undefined;
}

/** Contains the public keys that sign manifests. */
export const publicKeys = `${ours}keys/`;
export const publicKeyAt = (keyId: string) => `${publicKeys}${keyId}.json`;

/** The changes of an hour. */
export const changesKey = (hour: Date) =>
  `${ours}changes/${hour.toISOString().slice(0, 10)}/${hour.toISOString().slice(11, 13)}.jsonl.gz`;

/** The audit log of a day, `2026-01-31`. `number`: 1, or more if the day was written before. */
export const auditKey = (day: string, number: number) =>
  `${ours}audit/${day}${number > 1 ? `.${number}` : ''}.jsonl.gz`;

/** The report of a restore drill. `number`: 1, or more if there was one on that day before. */
export const drillKey = (day: string, number: number) => `${ours}drills/${day}${number > 1 ? `.${number}` : ''}.json`;

/** The name of a superseded file, by the time at which it was replaced: `20260131T120000000Z`. Some file systems refuse colons. */
export const versionName = (replacedAt: Date) => replacedAt.toISOString().replace(/[-:.]/g, '');

/** The keys of a superseded file: of its record, and of the copies of its objects. */
export const versionKeys = {
  prefix: `${ours}versions/`,
  record: (assetId: string, replacedAt: Date) => `${versionKeys.folder(assetId, replacedAt).slice(0, -1)}.json`,
  folder: (assetId: string, replacedAt: Date) =>
    `${versionKeys.prefix}${idSegment(assetId)}/${versionName(replacedAt)}/`,
  /** Where the copy of the object at `key` is. */
  copy: (assetId: string, replacedAt: Date, key: string) =>
    `${versionKeys.folder(assetId, replacedAt)}${key.slice(key.lastIndexOf('/') + 1)}`,
};

export interface KeyParts {
  companyId: string;
  projectId: string | null | undefined;
  assetId: string;
  /** The result of `safeFilename`. */
  filename: string;
}

/** Fills KEY_TEMPLATE. */
export function mediaKey(template: string, parts: KeyParts): string {
  const values: Record<string, string> = {
    companyId: idSegment(parts.companyId),
    projectId: parts.projectId ? idSegment(parts.projectId) : '_',
    assetId: idSegment(parts.assetId),
    filename: parts.filename,
  };
  return template.replace(/\{(\w+)\}/g, (_, name: string) => values[name]!);
}

/** The keys of the sidecars of the media file at `key`. */
export const sidecarKeys = {
  record: (key: string) => `${key}.asset.json`,
  captions: (key: string) => `${key}.vtt`,
  text: (key: string) => `${key}.txt`,
  transcript: (key: string) => `${key}.transcript.json`,
  thumbnail: (key: string, extension: string) => `${key}.thumbnail.${extension}`,
};

/**
 * An id as one path segment. Characters that are special in paths are percent-encoded; an id that is too long, empty or not
 * NFC ends in `~` and a digest. So two ids never share a segment, and none is `_` (no project), `_mirror` or hidden.
 */
export function idSegment(id: string): string {
  // Normalizing takes quadratic time, and only the beginning of a long id is used.
  const encoded = id
    .slice(0, 1000)
    .toWellFormed()
    .normalize('NFC')
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}/\\%?#~]|^\.|^_(?=$|mirror$)/gu, (c) =>
      encodeURIComponent(c).replace('.', '%2E').replace('_', '%5F').replace('~', '%7E'),
    );
  const isPlain = id !== '' && id.length <= 200 && id.isWellFormed() && id === id.normalize('NFC');
  if (isPlain && Buffer.byteLength(encoded) <= 200) return encoded;
  return `${cut(encoded, 120)}~${createHash('sha256').update(id, 'utf16le').digest('hex')}`;
}

/** Whether a segment ends in a digest, so that it does not contain the whole id. */
export const isDigested = (segment: string) => /~[\da-f]{64}$/.test(segment);

/**
 * `download.filename` as one path segment: NFC, no control characters, no `/` or `\`, never `.` or `..`, at most 200 bytes
 * with the extension kept; an empty name becomes `asset`. `extension` replaces the extension.
 */
export function safeFilename(name: string | null | undefined, extension?: string, maxBytes = 200): string {
  let safe = ends(name ?? '')
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Noncharacter_Code_Point}]/gu, '')
    .replace(/[/\\]/g, '_')
    .normalize('NFC');
  if (isBlank(safe)) safe = 'asset';
  const dot = safe.lastIndexOf('.');
  const ending = safe.slice(dot);
  // No extension: a suffix of more than 32 bytes or with a space, and a whole name such as `.profile`.
  const has = dot > 0 && ending !== '.' && !/\s/.test(ending) && Buffer.byteLength(ending) <= 32;
  const stem = has ? safe.slice(0, dot) : safe;
  const suffix = extension ? `.${extension}` : has ? ending : '';
  const short = cut(stem, maxBytes - Buffer.byteLength(suffix)) + suffix;
  return isBlank(short) ? 'asset' : short;
}

/** The beginning and the end of a long name: normalizing takes quadratic time. */
const ends = (name: string) => (name.length <= 4000 ? name : name.slice(0, 3900) + name.slice(-100));

const isBlank = (name: string) => /^[\s.]*$/.test(name);

/** At most `bytes` bytes of UTF-8, without splitting what people see as one character. */
function cut(text: string, bytes: number): string {
  if (Buffer.byteLength(text) <= bytes) return text;
  let out = '';
  for (const { segment } of new Intl.Segmenter().segment(text)) {
    if (Buffer.byteLength(out + segment) > bytes) break;
    out += segment;
  }
  // A single one may be too long itself: then it is cut between code points.
  return out || text.slice(0, new TextEncoder().encodeInto(text, Buffer.alloc(bytes)).read);
}
