import type { Position, Query, Source } from '../catalogue.ts';
import { newestFirst } from '../catalogue.ts';
import { type Asset, type Company, isVideo, type Project } from '../model.ts';
import { type Body, bodyOf, generated } from './body.ts';
import { NEWEST } from './content.ts';
import { nameOf, tagsOf } from './names.ts';
import { randomFrom } from './random.ts';
import { speech } from './speech.ts';
import { placeholder } from './thumbnail.ts';

const SPREAD = 3 * 365 * 24 * 3600 * 1000;
const PROJECTS = 40;

/** What an asset is, and how many of sixteen are of that kind. Sizes in bytes, from and to. */
const KINDS = [
  { share: 3, assetType: 'videos', extension: 'mp4', mimeType: 'video/mp4', sizes: [5e6, 2e9] },
  { share: 2, assetType: 'selects', extension: 'mov', mimeType: 'video/quicktime', sizes: [2e7, 4e9] },
  { share: 2, assetType: 'social', extension: 'mp4', mimeType: 'video/mp4', sizes: [1e6, 1e8] },
  { share: 4, assetType: 'photography', extension: 'jpg', mimeType: 'image/jpeg', sizes: [2e5, 3e7] },
  { share: 2, assetType: 'graphics', extension: 'png', mimeType: 'image/png', sizes: [2e4, 1e7] },
  { share: 1, assetType: 'audio', extension: 'wav', mimeType: 'audio/wav', sizes: [1e6, 3e8] },
  { share: 1, assetType: 'documents', extension: 'pdf', mimeType: 'application/pdf', sizes: [2e4, 2e7] },
  { share: 1, assetType: 'brand assets', extension: 'zip', mimeType: 'application/zip', sizes: [1e5, 5e8] },
] as const;

const SLOTS = KINDS.flatMap((kind) => Array.from({ length: kind.share }, () => kind));

export type Synthetic = {
  count: number;
  seed: number;
  /** Every size lies between these, instead of what is usual for its kind. */
  sizes?: [number, number];
};

/**
 * A library of any number of assets of any size that is a formula: nothing is stored, every asset is made from its
 * number when it is asked for, and so is every byte of it. Asset 0 is the newest.
 */
export function synthetic({ count, seed, sizes }: Synthetic): { company: Company; source: Source } {
  const company = { id: `cmp_synthetic_${seed}`, name: `Synthetic ${seed}` };
  const step = Math.max(1, Math.floor(SPREAD / Math.max(1, count)));
  const projects = Array.from(
    { length: PROJECTS },
    (_, i): Project => ({
      id: `prj_synthetic_${seed}_${i}`,
      companyId: company.id,
      name: `Project ${i + 1}`,
      status: 'active',
    }),
  );
  const idPattern = new RegExp(`^ast_${seed}_(\\d{1,12})$`);
  const isProject = (id: string) => projects.some((project) => project.id === id);

  const idOf = (i: number) => `ast_${seed}_${i}`;
  const dateOf = (i: number) => NEWEST - i * step - (hash(seed, i, 0) % step);
  const kindOf = (i: number) => SLOTS[hash(seed, i, 1) % SLOTS.length]!;
  const projectOf = (i: number) => projects[hash(seed, i, 2) % PROJECTS]!;

  function asset(i: number): Asset {
    const random = randomFrom(hash(seed, i, 3));
    const { assetType, extension, mimeType, sizes: usual } = kindOf(i);
    const [smallest, largest] = sizes ?? usual;
    const size = Math.round(smallest * (largest / smallest) ** random.next());
    const filename = nameOf(assetType, extension, i, random);
    const project = projectOf(i);
    const isTimed = /^(video|audio)/.test(mimeType);
    const isUnavailable = i % 1000 === 999;
    const duration = isTimed ? Math.round(1000 * (2 + size / 1e6)) / 1000 : null;
    const body = (type: string, name: string, size: number) => (): Body => bodyOf(type, [generated(name, size)]);
    return {
      id: idOf(i),
      uploadDate: dateOf(i),
      companyId: company.id,
      project: { id: project.id, name: project.name },
      name: filename,
      filename,
      mimeType,
      assetType,
      tags: tagsOf(random),
      status: isUnavailable ? 'unavailable' : 'ready',
      readyAt: null,
      size: isUnavailable ? 0 : size,
      duration,
      width: isVideo(mimeType) ? 1920 : mimeType.startsWith('image/') ? 4000 : null,
      height: isVideo(mimeType) ? 1080 : mimeType.startsWith('image/') ? 3000 : null,
      original: isUnavailable ? null : body(mimeType, `${seed} ${i}`, size),
      originalGone: isVideo(mimeType) && i % 50 === 49,
      mp4: isVideo(mimeType) ? body('video/mp4', `${seed} ${i} mp4`, Math.ceil(size / 3)) : null,
      thumbnail: placeholder(`${seed} ${i}`),
      // Only made when it is read: a long one has thousands of words, and lists are full of assets.
      get transcript() {
        return isTimed ? speech(`${seed} ${i}`, Math.min(duration ?? 0, 3600), i % 2 === 0) : null;
      },
      transcriptAt: 0,
      hasTranscript: isTimed,
      override: {},
      overrideDetail: {},
      omit: [],
    };
  }

  function firstAfter(after: Position): number {
    let i = Math.max(0, Math.floor((NEWEST - after.uploadDate) / step) - 1);
    while (i < count && newestFirst({ id: idOf(i), uploadDate: dateOf(i) }, after) <= 0) i++;
    return i;
  }

  return {
    company,
    source: {
      projects: (companyId) => (companyId === company.id ? projects : []),

      find(id) {
        const i = Number(idPattern.exec(id)?.[1]);
        return i < count && idOf(i) === id ? asset(i) : undefined;
      },

      list({ companyId, limit, after, since, assetType, projectId }: Query, isHidden) {
        const found: Asset[] = [];
        if (companyId !== company.id || (projectId !== null && !isProject(projectId))) return found;
        for (let i = after ? firstAfter(after) : 0; i < count && found.length < limit; i++) {
          if (since !== null && dateOf(i) <= since) break;
          if (assetType !== null && kindOf(i).assetType !== assetType) continue;
          if (projectId !== null && projectOf(i).id !== projectId) continue;
          if (!isHidden(idOf(i))) found.push(asset(i));
        }
        return found;
      },
    },
  };
}

/** A fast hash of three numbers (the finalizer of MurmurHash3), below 2^32. */
function hash(seed: number, i: number, salt: number): number {
  let h = Math.imul(seed ^ Math.imul(salt + 1, 0x9e3779b1), 0x85ebca6b) ^ (i >>> 0) ^ Math.floor(i / 2 ** 32);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
