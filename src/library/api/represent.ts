import { type Asset, isVideo, statusAt, transcriptAt } from '../model.ts';
import type { Service } from '../service.ts';
import { downloadExpiry, link, thumbnailLink } from './links.ts';

type Json = Record<string, unknown>;

/** Section 2.6. Fields without a value, such as a document's duration, are omitted. */
export function summaryOf(service: Service, asset: Asset): Json {
  const now = service.clock.now();
  const status = statusAt(asset, now);
  const summary: Json = {
    id: asset.id,
    name: asset.name,
    mimeType: asset.mimeType,
    assetType: asset.assetType,
    size: status === 'unavailable' ? 0 : asset.size,
    ...(asset.duration !== null && { duration: asset.duration }),
    ...(asset.width !== null && { width: asset.width }),
    ...(asset.height !== null && { height: asset.height }),
    ...(asset.project && { projectId: asset.project.id, projectName: asset.project.name }),
    tags: asset.tags,
    uploadDate: asset.uploadDate,
    status,
    hasTranscript: asset.hasTranscript ?? transcriptAt(asset, now) !== null,
    ...(asset.thumbnail && { thumbnailUrl: thumbnailLink(service, asset.id) }),
  };
  return without({ ...summary, ...asset.override }, asset.omit);
}

/** Sections 2.7 and 4.7. The link of an asset without a file answers 404. */
export function detailOf(service: Service, asset: Asset): Json {
  const expiresAt = downloadExpiry(service);
  const hasMp4 = asset.mp4 && isVideo(asset.mimeType) && statusAt(asset, service.clock.now()) === 'ready';
  const download = {
    url: link(service, asset.id, 'original', expiresAt),
    mp4Url: hasMp4 ? link(service, asset.id, 'mp4', expiresAt) : null,
    filename: asset.filename,
    expiresAt,
  };
  const detail = { asset: { ...summaryOf(service, asset), download } };
  return without(merged(detail, asset.overrideDetail), asset.omit, 'asset');
}

/** Removes fields. A name such as `download.url` is a field of `download`. */
function without(json: Json, names: string[], under?: string): Json {
  if (names.length === 0) return json;
  const copy = structuredClone(json);
  for (const name of names) {
    const path = under ? [under, ...name.split('.')] : name.split('.');
    const last = path.pop()!;
    const holder = path.reduce<unknown>((value, key) => (value as Json | undefined)?.[key], copy);
    if (holder) delete (holder as Json)[last];
  }
  return copy;
}

function merged(target: Json, over: Json): Json {
  const result = { ...target };
  for (const [key, value] of Object.entries(over)) {
    const old = result[key];
    result[key] = isObject(old) && isObject(value) ? merged(old, value) : value;
  }
  return result;
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
