import { z } from 'zod';
import { type Body, bodyOf, generated } from '../content/body.ts';
import { placeholder } from '../content/thumbnail.ts';
import { HttpError } from '../http-error.ts';
import { type Asset, isVideo, newAsset } from '../model.ts';
import { newId } from '../secrets.ts';
import type { Service } from '../service.ts';

const Content = z.union([
  z.strictObject({ text: z.string() }),
  z.strictObject({ base64: z.base64() }),
  z.strictObject({ seed: z.union([z.number(), z.string()]), size: z.int().nonnegative() }),
]);

const Transcript = z.union([
  z.strictObject({ noSpeech: z.literal(true) }),
  z.strictObject({
    language: z.string(),
    durationSec: z.number(),
    text: z.string(),
    vtt: z.string(),
    words: z.array(z.strictObject({ word: z.string(), start: z.number(), end: z.number() })).nullable(),
  }),
]);

const Json = z.record(z.string(), z.unknown());

/** The properties of an asset that can be set. */
export const Change = z.strictObject({
  projectId: z.string().nullable().optional(),
  name: z.string().optional(),
  mimeType: z.string().optional(),
  assetType: z.string().optional(),
  /** `processing` stays until the next change. */
  status: z.enum(['ready', 'processing', 'unavailable']).optional(),
  uploadDate: z.int().optional(),
  content: Content.optional(),
  mp4: Content.nullable().optional(),
  originalGone: z.boolean().optional(),
  filename: z.string().optional(),
  hasTranscript: z.boolean().nullable().optional(),
  transcript: Transcript.nullable().optional(),
  thumbnail: z.boolean().optional(),
  tags: z.array(z.string()).optional(),
  duration: z.number().nullable().optional(),
  width: z.int().nullable().optional(),
  height: z.int().nullable().optional(),
  /** Replaces fields of the asset in the API's answers. */
  override: Json.optional(),
  /** Merged deeply into the answer {asset: …} about this asset. */
  overrideDetail: Json.optional(),
  /** Fields that the API's answers omit, such as `tags` or `download.url`. */
  omit: z.array(z.string()).optional(),
});

export const Upload = Change.extend({
  id: z.string().optional(),
  companyId: z.string(),
  name: z.string(),
  mimeType: z.string(),
  assetType: z.string(),
});

type Content = z.infer<typeof Content>;
export type Change = z.infer<typeof Change>;
export type Upload = z.infer<typeof Upload>;

/** Adds an asset. A new video is `processing` at first, and transcripts exist later. */
export function uploadAsset(service: Service, { id = newId('ast'), companyId, ...given }: Upload): Asset {
  if (!service.accounts.company(companyId)) {
    throw new HttpError(404, 'not_found', `The company ${companyId} does not exist.`);
  }
  const { name, mimeType, assetType } = given;
  const now = service.clock.now();
  const { transcodeDelay, transcriptDelay } = service.settings;
  const isTranscoded = given.status === undefined && isVideo(mimeType) && transcodeDelay > 0;
  const blank = newAsset({ id, companyId, name, mimeType, assetType, uploadDate: now });
  const content = given.status === 'unavailable' ? undefined : { text: name };
  const asset = withChange(service, blank, { content, thumbnail: true, ...given });
  const size = asset.size === 0 ? 1 : Math.floor(asset.size / 2);
  const uploaded = {
    ...asset,
    ...(isTranscoded && { status: 'processing' as const, readyAt: now + transcodeDelay }),
    transcriptAt: now + transcriptDelay,
    ...(given.mp4 === undefined &&
      isVideo(mimeType) && { mp4: () => bodyOf('video/mp4', [generated(`mp4 ${id}`, size)]) }),
  };
  service.catalogue.put(uploaded);
  return uploaded;
}

export function changeAsset(service: Service, id: string, given: Change): Asset {
  const asset = service.catalogue.find(id);
  if (!asset) throw new HttpError(404, 'not_found', `The asset ${id} does not exist.`);
  const changed = withChange(service, asset, given);
  service.catalogue.put(changed);
  return changed;
}

function withChange(service: Service, asset: Asset, given: Change): Asset {
  const { projectId, content, mp4, thumbnail, status, transcript, ...plain } = defined(given);
  const body = content && bodyFrom(given.mimeType ?? asset.mimeType, content);
  const mp4Body = mp4 && bodyFrom('video/mp4', mp4);
  return {
    ...asset,
    ...plain,
    ...(projectId !== undefined && { project: projectOf(service, asset.companyId, projectId) }),
    ...(status !== undefined && { status, readyAt: null }),
    ...(body && { size: body.size, original: () => body }),
    ...(mp4 !== undefined && { mp4: mp4Body ? () => mp4Body : null }),
    ...(thumbnail !== undefined && { thumbnail: thumbnail ? placeholder(asset.id) : null }),
    ...(transcript !== undefined && { transcript, transcriptAt: service.clock.now() }),
  };
}

type Defined<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

function defined<T extends object>(value: T): Defined<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Defined<T>;
}

function projectOf(service: Service, companyId: string, id: string | null): Asset['project'] {
  if (id === null) return null;
  const project = service.catalogue.projects(companyId).find((project) => project.id === id);
  if (!project) throw new HttpError(404, 'not_found', `The company ${companyId} has no project ${id}.`);
  return { id, name: project.name };
}

function bodyFrom(type: string, content: Content): Body {
  if ('text' in content) return bodyOf(type, [Buffer.from(content.text)]);
  if ('base64' in content) return bodyOf(type, [Buffer.from(content.base64, 'base64')]);
  return bodyOf(type, [generated(content.seed, content.size)]);
}
