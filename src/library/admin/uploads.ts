import { z } from 'zod';
import { type Body, bodyOf, generated } from '../content/body.ts';
import { placeholder } from '../content/thumbnail.ts';
import { type Asset, isVideo } from '../model.ts';
import { newId } from '../secrets.ts';
import { Refusal, type Service } from '../service.ts';

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

/** What can be said about an asset, at its upload and later. */
export const Change = z.strictObject({
  projectId: z.string().nullable().optional(),
  name: z.string().optional(),
  mimeType: z.string().optional(),
  assetType: z.string().optional(),
  /** `processing` stays so until it is told otherwise. */
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
  /** Merged over the asset as the API lists it. */
  override: Json.optional(),
  /** Merged, deep, over the answer {asset: …} about this one asset. */
  overrideDetail: Json.optional(),
  /** Names of fields that answers leave out; `download.url` is one inside another. */
  omit: z.array(z.string()).optional(),
});

export const Upload = Change.extend({
  id: z.string().optional(),
  companyId: z.string(),
  name: z.string(),
  mimeType: z.string(),
  assetType: z.string(),
});

export type Content = z.infer<typeof Content>;
export type Change = z.infer<typeof Change>;
export type Upload = z.infer<typeof Upload>;

/** An upload is `processing` for a while if it is a video, and its transcript comes some minutes later. */
export async function upload(service: Service, { id = newId('ast'), companyId, ...given }: Upload): Promise<Asset> {
  if (!service.accounts.company(companyId)) throw new Refusal(404, 'not_found', `There is no ${companyId}.`);
  const now = service.clock.now();
  const { transcodeDelay, transcriptDelay } = service.settings;
  const isTranscoded = given.status === undefined && isVideo(given.mimeType) && transcodeDelay > 0;
  const blank: Asset = {
    id,
    companyId,
    project: null,
    name: given.name,
    filename: given.name,
    mimeType: given.mimeType,
    assetType: given.assetType,
    tags: [],
    uploadDate: now,
    status: isTranscoded ? 'processing' : 'ready',
    readyAt: isTranscoded ? now + transcodeDelay : null,
    size: 0,
    duration: null,
    width: null,
    height: null,
    original: null,
    originalGone: false,
    mp4: null,
    thumbnail: null,
    transcript: null,
    transcriptAt: now,
    hasTranscript: null,
    override: {},
    overrideDetail: {},
    omit: [],
  };
  const content = given.status === 'unavailable' ? undefined : { text: given.name };
  const asset = await changed(service, blank, {
    content,
    thumbnail: true,
    ...given,
  });
  const size = asset.size === 0 ? 1 : Math.floor(asset.size / 2);
  const uploaded = {
    ...asset,
    transcriptAt: now + transcriptDelay,
    ...(given.mp4 === undefined &&
      isVideo(asset.mimeType) && { mp4: () => bodyOf('video/mp4', [generated(`mp4 ${id}`, size)]) }),
  };
  await service.catalogue.put(uploaded);
  return uploaded;
}

export async function change(service: Service, id: string, given: Change): Promise<Asset> {
  const asset = await service.catalogue.find(id);
  if (!asset) throw new Refusal(404, 'not_found', `There is no asset ${id}.`);
  const after = await changed(service, asset, given);
  await service.catalogue.put(after);
  return after;
}

async function changed(service: Service, asset: Asset, given: Change): Promise<Asset> {
  const { projectId, content, mp4, thumbnail, status, transcript, ...plain } = defined(given);
  const mimeType = given.mimeType ?? asset.mimeType;
  const body = content && bodyFrom(mimeType, content);
  return {
    ...asset,
    ...plain,
    ...(projectId !== undefined && { project: await projectOf(service, asset.companyId, projectId) }),
    ...(status !== undefined && { status, readyAt: null }),
    ...(body && { size: body.size, original: () => body }),
    ...(mp4 !== undefined && { mp4: mp4 && laterBodyFrom('video/mp4', mp4) }),
    ...(thumbnail !== undefined && { thumbnail: thumbnail ? placeholder(asset.id) : null }),
    ...(transcript !== undefined && { transcript, transcriptAt: service.clock.now() }),
  };
}

type Defined<T> = { [Key in keyof T]: Exclude<T[Key], undefined> };

function defined<T extends object>(value: T): Defined<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Defined<T>;
}

async function projectOf(service: Service, companyId: string, id: string | null): Promise<Asset['project']> {
  if (id === null) return null;
  const project = (await service.catalogue.projects(companyId)).find((project) => project.id === id);
  if (!project) throw new Refusal(404, 'not_found', `There is no project ${id} in ${companyId}.`);
  return { id, name: project.name };
}

function bodyFrom(type: string, content: Content): Body {
  if ('text' in content) return bodyOf(type, [Buffer.from(content.text)]);
  if ('base64' in content) return bodyOf(type, [Buffer.from(content.base64, 'base64')]);
  return bodyOf(type, [generated(content.seed, content.size)]);
}

function laterBodyFrom(type: string, content: Content): () => Body {
  const body = bodyFrom(type, content);
  return () => body;
}
