import type { Change, Upload } from '../../src/library/admin/assets.ts';
import { type PlannedAsset, projects } from './plan.ts';

/** An asset as the library must have it now; the check compares it with the bucket. */
export interface Held {
  plan: PlannedAsset;
  name: string;
  uploadDate: number;
  content: { seed: string; size: number };
  mp4: { seed: string; size: number } | null;
  status: 'ready' | 'processing' | 'unavailable';
  transcript: Transcript | null;
  removed: boolean;
  /** When each of its versions was uploaded. */
  versions: number[];
}

type Transcript = NonNullable<Change['transcript']>;

/** An upload date, in the order of the uploads. */
export interface Dated {
  id: string;
  companyId: string;
  date: number;
}

export type Content = ReturnType<typeof createContent>;

const mimeTypes = {
  photograph: ['image/jpeg', 'photography'],
  document: ['application/pdf', 'documents'],
  graphic: ['image/png', 'graphics'],
  sound: ['audio/wav', 'audio'],
  video: ['video/quicktime', 'videos'],
  large: ['application/zip', 'brand assets'],
  empty: ['application/octet-stream', 'documents'],
} as const;

/** The content of the library. It is kept here so that a killed library can get it again. */
export function createContent() {
  const held = new Map<string, Held>();
  const dates: Dated[] = [];

  const dated = (asset: Held) =>
    dates.push({ id: asset.plan.id, companyId: asset.plan.companyId, date: asset.uploadDate });

  return {
    held,
    dates,

    add(plan: PlannedAsset, together: number): Held {
      const now = Date.now();
      const { date } = plan;
      const asset: Held = {
        plan,
        name: plan.name,
        uploadDate:
          date.kind === 'together'
            ? together
            : now + ('ahead' in date ? date.ahead : 0) - ('ago' in date ? date.ago : 0),
        content: { seed: `${plan.id} 1`, size: plan.size },
        mp4: plan.mp4Size === null ? null : { seed: `${plan.id} mp4`, size: plan.mp4Size },
        status: plan.unavailable ? 'unavailable' : plan.readyIn === null ? 'ready' : 'processing',
        transcript: plan.transcript?.wave === plan.wave ? transcriptOf(plan) : null,
        removed: false,
        versions: [now],
      };
      held.set(plan.id, asset);
      dated(asset);
      return asset;
    },

    /** What happens to an asset in a wave after its own. Undefined: nothing. */
    change(asset: Held, wave: number): 'remove' | Change | undefined {
      const { plan } = asset;
      if (asset.removed) return undefined;
      if (plan.removedIn === wave) {
        asset.removed = true;
        return 'remove';
      }
      const change: Change = {};
      if (plan.attachedIn === wave || plan.readyIn === wave) {
        asset.status = 'ready';
        change.status = 'ready';
      }
      if (plan.transcript?.wave === wave) {
        asset.transcript = transcriptOf(plan);
        change.transcript = asset.transcript;
      }
      if (plan.renamedIn === wave) {
        asset.name = `Renamed ${plan.name}`;
        change.name = asset.name;
      }
      if (plan.replacedIn === wave) {
        asset.content = { seed: `${plan.id} ${asset.versions.length + 1}`, size: plan.replacedSize };
        asset.uploadDate = Date.now();
        asset.versions.push(asset.uploadDate);
        change.content = asset.content;
        change.uploadDate = asset.uploadDate;
        dated(asset);
      }
      return Object.keys(change).length > 0 ? change : undefined;
    },

    projects,
    uploadOf,
  };
}

/** The asset as it is uploaded again, and the changes that must follow the upload. */
function uploadOf(asset: Held): { upload: Upload; later: Change | undefined } {
  const { plan } = asset;
  const [mimeType, assetType] = mimeTypes[plan.kind];
  return {
    upload: {
      id: plan.id,
      companyId: plan.companyId,
      ...(plan.projectId !== null && { projectId: plan.projectId }),
      name: asset.name,
      filename: plan.name,
      mimeType,
      assetType,
      uploadDate: asset.uploadDate,
      content: asset.content,
      mp4: asset.mp4,
      originalGone: plan.originalGone,
      status: asset.status,
      tags: [plan.kind],
    },
    // A transcript of an upload is ready after minutes; one that is added later is ready at once.
    later: asset.transcript ? { transcript: asset.transcript } : undefined,
  };
}

function transcriptOf({ id, transcript }: PlannedAsset): Transcript {
  if (!transcript!.speech) return { noSpeech: true };
  const text = `What is said in ${id} — «wörtlich».`;
  return {
    language: 'en',
    durationSec: 2,
    text,
    vtt: `WEBVTT\n\n00:00.000 --> 00:02.000\n${text}\n`,
    words: [{ word: 'What', start: 0, end: 0.5 }],
  };
}
