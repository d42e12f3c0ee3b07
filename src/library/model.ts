import type { Body } from './content/body.ts';

/** Section 2.6. */
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

export type Status = 'ready' | 'processing' | 'unavailable';

export type User = { id: string; name: string; email: string };
export type Company = { id: string; name: string };
/** A registered app (section 2.1). */
export type Registration = {
  clientId: string;
  name: string;
  logoUrl: string | null;
  websiteUrl: string;
  redirectUris: string[];
};

export type Project = { id: string; companyId: string; name: string; status: string };

/** Section 2.8. */
export type Transcript =
  | { noSpeech: true }
  | {
      language: string;
      durationSec: number;
      text: string;
      vtt: string;
      words: { word: string; start: number; end: number }[] | null;
    };

export type Asset = {
  id: string;
  companyId: string;
  project: { id: string; name: string } | null;
  name: string;
  filename: string;
  mimeType: string;
  /** One of ASSET_TYPES. Tests also use unknown types. */
  assetType: string;
  tags: string[];
  uploadDate: number;
  status: Status;
  /** When a `processing` asset becomes ready. Null: when the admin API changes its status. */
  readyAt: number | null;
  size: number;
  duration: number | null;
  width: number | null;
  height: number | null;
  /** Bodies are made when a link is used. Null: there is no file. */
  original: (() => Body) | null;
  /** The link to the original answers 404 (section 4.7, rule 2). */
  originalGone: boolean;
  mp4: (() => Body) | null;
  thumbnail: (() => Body) | null;
  transcript: Transcript | null;
  /** When the transcript begins to exist. */
  transcriptAt: number;
  /** Null: true as soon as the transcript exists. */
  hasTranscript: boolean | null;
  /** Wrong values in the API's answers, to test clients with. */
  override: Record<string, unknown>;
  overrideDetail: Record<string, unknown>;
  omit: string[];
};

/** An asset with defaults: ready, and without file, project and sidecars. */
export function newAsset(
  asset: Pick<Asset, 'id' | 'companyId' | 'name' | 'mimeType' | 'assetType' | 'uploadDate'> & Partial<Asset>,
): Asset {
  return {
    project: null,
    filename: asset.name,
    tags: [],
    status: 'ready',
    readyAt: null,
    size: 0,
    duration: null,
    width: null,
    height: null,
    original: null,
    originalGone: false,
    mp4: null,
    thumbnail: null,
    transcript: null,
    transcriptAt: 0,
    hasTranscript: null,
    override: {},
    overrideDetail: {},
    omit: [],
    ...asset,
  };
}

export function statusAt(asset: Asset, now: number): Status {
  return asset.status === 'processing' && asset.readyAt !== null && asset.readyAt <= now ? 'ready' : asset.status;
}

export function transcriptAt(asset: Asset, now: number): Transcript | null {
  return asset.transcriptAt <= now ? asset.transcript : null;
}

export function isTimed(asset: Asset): boolean {
  return /^(video|audio)\//.test(asset.mimeType);
}

export function isVideo(mimeType: string): boolean {
  return mimeType.startsWith('video/');
}
