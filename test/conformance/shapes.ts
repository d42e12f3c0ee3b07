import { z } from 'zod';

/** The schemas of section 2. Additional fields are accepted. */

export const TokenResponse = z.looseObject({
  access_token: z.string().startsWith('svca_'),
  token_type: z.literal('Bearer'),
  expires_in: z.literal(3600),
  refresh_token: z.string().startsWith('svcr_'),
  scope: z.string().refine((scope) => scope.split(' ').includes('assets:read'), 'contains assets:read'),
});

export const Company = z.looseObject({ id: z.string().min(1), name: z.string() });

export const Me = z.looseObject({
  user: z.looseObject({ id: z.string().min(1), name: z.string(), email: z.string() }),
  companies: z.array(Company),
});

const Project = z.looseObject({ id: z.string().min(1), name: z.string(), status: z.string() });
export const Projects = z.looseObject({ projects: z.array(Project) });

export const ASSET_TYPES = [
  'videos',
  'selects',
  'social',
  'photography',
  'graphics',
  'audio',
  'documents',
  'brand assets',
] as const;

/** Fields without a value may be absent or null. */
export const Asset = z.looseObject({
  id: z.string().min(1),
  name: z.string(),
  mimeType: z.string().regex(/^[\w.+-]+\/[\w.+-]+/, 'is a MIME type'),
  assetType: z.enum(ASSET_TYPES),
  size: z.int().nonnegative(),
  duration: z.number().nonnegative().nullish(),
  width: z.int().nonnegative().nullish(),
  height: z.int().nonnegative().nullish(),
  projectId: z.string().nullish(),
  projectName: z.string().nullish(),
  tags: z.array(z.string()),
  uploadDate: z.int().min(1e11, 'is in milliseconds'),
  status: z.enum(['ready', 'processing', 'unavailable']),
  hasTranscript: z.boolean(),
  thumbnailUrl: z.url(),
});

export const Page = z.looseObject({ assets: z.array(Asset), nextCursor: z.string().nullish() });

const Download = z.looseObject({
  url: z.url(),
  mp4Url: z.url().nullable(),
  filename: z.string().min(1),
  expiresAt: z.int().min(1e9).max(1e11, 'is in seconds'),
});

export const Detail = z.looseObject({ asset: Asset.extend({ download: Download }) });

export const Transcript = z.looseObject({
  assetId: z.string(),
  language: z.string().min(1),
  durationSec: z.number().nonnegative(),
  text: z.string(),
  vtt: z.string().startsWith('WEBVTT'),
  words: z.array(z.looseObject({ word: z.string(), start: z.number(), end: z.number() })).nullable(),
});

/** Replaces all other fields, except for assetId. */
export const NoSpeech = z
  .looseObject({ assetId: z.string(), noSpeech: z.literal(true) })
  .refine((it) => !['language', 'durationSec', 'text', 'vtt', 'words'].some((name) => it[name] !== undefined), {
    message: 'has noSpeech instead of the other fields',
  });

export const InvalidGrant = z.looseObject({ error: z.literal('invalid_grant') });

export type Tokens = z.infer<typeof TokenResponse>;
export type Company = z.infer<typeof Company>;
export type Asset = z.infer<typeof Asset>;
export type Page = z.infer<typeof Page>;
export type DetailedAsset = z.infer<typeof Detail>['asset'];
