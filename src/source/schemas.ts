import { z } from 'zod';
import { Rejected } from '../floor/errors.ts';

/**
 * The library's answers (spec, section 2). Only identifiers are required; fields that a decision depends on must have the
 * spec's type if present; all other fields, and unknown states and types, are kept as received.
 */

/** The types in the spec (section 2.6); the library may add others. */
export const assetTypes = [
  'videos',
  'selects',
  'social',
  'photography',
  'graphics',
  'audio',
  'documents',
  'brand assets',
];

export const unknownTypes = (types: string[]): string[] => types.filter((type) => !assetTypes.includes(type));

const text = z.string().nullish();
/** No decision depends on it: a value that is not text counts as absent. */
const optional = text.catch(undefined);

/** An index entry of the database has space for a company's id and one other value (2,704 bytes in all). */
const most = { companyId: 1600, other: 1000 };
const fits = (bytes: number) => (value: string) => Buffer.byteLength(value) <= bytes;
const indexed = z.string().refine(fits(most.other), `expected at most ${most.other} bytes`).nullish();

/** Ids become keys, rows and URLs: bounded, storable in a database, and no step in a path (RFC 3986, 5.2.4). */
const idOf = (bytes: number) =>
  z
    .string()
    .regex(/^[^\0\p{Cs}]+$/u, 'expected an id, of characters that can be stored')
    .refine(fits(bytes), `expected an id of at most ${bytes} bytes`)
    .refine((value) => value !== '.' && value !== '..', 'this id cannot be part of an address');
const id = idOf(most.other);

export const company = z.looseObject({ id: idOf(most.companyId), name: optional });

export const meAnswer = z.looseObject({
  user: z.looseObject({ id, name: optional, email: optional }),
  companies: z.array(z.unknown()),
});

/** `name` is not checked, because it is stored as received: see `textOf`. */
export const asset = z.looseObject({
  id,
  mimeType: text,
  assetType: indexed,
  size: z.int().min(0).nullish(),
  projectId: indexed,
  /** Epoch milliseconds. */
  uploadDate: z.int().nullish(),
  status: text,
  hasTranscript: z.boolean().nullish(),
  thumbnailUrl: optional,
});
export type ApiAsset = z.infer<typeof asset>;

/** The text of an unchecked field; undefined if it is not text. */
export const textOf = (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined);

export const download = z.looseObject({
  url: text,
  mp4Url: text,
  filename: text,
});

export const assetAnswer = z.looseObject({ asset: asset.extend({ download: download.nullish() }) });
export type AssetDetail = z.infer<typeof assetAnswer>['asset'];

/** Identifies a version of the file by the fields of the API. */
export const versionOf = ({ size, uploadDate }: Pick<ApiAsset, 'size' | 'uploadDate'>): string =>
  `${size ?? '?'}:${uploadDate ?? '?'}`;

export const project = z.looseObject({ id, name: optional });

export const projectsAnswer = z.looseObject({ projects: z.array(z.unknown()) });

export const assetsAnswer = z.looseObject({ assets: z.array(z.unknown()), nextCursor: z.string().nullish() });

export const transcriptAnswer = z.union([
  z.looseObject({ assetId: z.string(), noSpeech: z.literal(true) }),
  z.looseObject({
    assetId: z.string(),
    text: text,
    vtt: text,
    noSpeech: z.literal(false).nullish(),
  }),
]);

/**
 * Transcripts exist for video and audio only (spec, section 4.8). For other and missing types, such as MXF,
 * `hasTranscript` decides.
 */
export function mayHaveTranscript(asset: {
  mimeType?: unknown;
  assetType?: unknown;
  hasTranscript?: unknown;
}): boolean {
  const type = String(asset.mimeType ?? '');
  const kind = String(asset.assetType);
  if (/^(video|audio)\//i.test(type) || ['videos', 'audio'].includes(kind)) return true;
  const isElse = /^(image|text|font)\//i.test(type) || ['photography', 'graphics', 'documents'].includes(kind);
  return asset.hasTranscript === true && !isElse;
}

/** @throws Rejected that names the field */
export function parseAnswer<T extends z.ZodType>(schema: T, what: string, body: unknown): z.output<T> {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  throw new Rejected({ code: 'invalid_answer', request: what, problem: problemOf(result.error) });
}

/** `size: Invalid input: expected number, received string` */
export function problemOf(error: z.ZodError): string {
  const issue = error.issues[0]!;
  const inner = issue.code === 'invalid_union' ? issue.errors.at(-1)?.[0] : undefined;
  const found = inner ?? issue;
  return `${[...issue.path, ...(inner?.path ?? [])].join('.') || 'answer'}: ${found.message}`;
}

const links = new Set(['thumbnailUrl', 'url', 'mp4Url']);
const nothing: Set<string> = new Set();
const fileNames = new Set(['filename']);
const plainText = new Set(['id', 'name', 'mimeType', 'assetType', 'projectId', 'projectName', 'tags', 'status']);

/** A web address, or the query of a signed one without host. It must not backtrack, because texts may have any length. */
const address = /[a-z0-9+.-]:\/\/|[?&][\w-]*(sig|signature|token|credential)=/i;

/** Unknown fields are kept down to this depth. */
const deepest = 50;

/**
 * The asset as received, without signed links, and without the time when they expire, which differs each time. Fields that are
 * not in the spec lose every web address, because a signed one cannot be recognized. Text that people write (names, tags) is not changed.
 */
export function withoutLinks(value: ApiAsset): Record<string, unknown> {
  const { download, ...asset } = value;
  const kept = fieldsOf(asset, plainText, 0);
  if (download !== null && typeof download === 'object') {
    const { expiresAt: _, ...file } = download as { expiresAt?: unknown };
    kept.download = fieldsOf(file, fileNames, 0);
  }
  return kept;
}

function fieldsOf(o: object, asWritten: Set<string>, depth: number): Record<string, unknown> {
  const kept = Object.entries(o).flatMap(([key, v]) => {
    if (links.has(key) || address.test(key)) return [];
    const left = asWritten.has(key) && isText(v) ? v : withoutAddresses(v, depth);
    return left === undefined ? [] : [[key, left]];
  });
  return Object.fromEntries(kept);
}

const isText = (v: unknown) =>
  typeof v === 'string' || (Array.isArray(v) && v.every((item) => typeof item === 'string'));

function withoutAddresses(v: unknown, depth: number): unknown {
  if (typeof v === 'string') return address.test(v) ? undefined : v;
  if (v === null || typeof v !== 'object') return v;
  if (depth > deepest) return undefined;
  if (Array.isArray(v)) return v.map((item) => withoutAddresses(item, depth + 1)).filter((item) => item !== undefined);
  return fieldsOf(v, nothing, depth + 1);
}

/** The value as the database returns it: text without NUL and lone surrogates, numbers as in JSON. */
export function storable<T>(value: T): T;
export function storable(v: unknown): unknown {
  if (typeof v === 'string') return v.replaceAll('\0', '').toWellFormed();
  if (typeof v === 'number') return Number.isFinite(v) ? v + 0 : null;
  if (v === null || typeof v !== 'object') return v;
  if (Array.isArray(v)) return v.map(storable);
  return Object.fromEntries(Object.entries(v).map(([key, item]) => [storable(key), storable(item)]));
}
