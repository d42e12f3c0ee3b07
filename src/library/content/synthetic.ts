import { newestFirst, type Position, type Query, type Source } from '../catalogue.ts';
import { type Asset, type Company, isVideo, newAsset, type Project } from '../model.ts';
import { type Body, bodyOf, generated } from './body.ts';
import { NEWEST } from './content.ts';
import { nameOf, tagsOf } from './names.ts';
import { type Random, randomFrom } from './random.ts';
import { speech } from './speech.ts';
import { placeholder } from './thumbnail.ts';

const SPREAD = 3 * 365 * 24 * 3600 * 1000;
const PROJECTS = 40;

/** The kinds of assets, and how many of sixteen are of each. Sizes are in bytes, from and to. */
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

type Options = {
  count: number;
  seed: number;
  /** Smallest and largest size. Default: the usual sizes of the kind. */
  sizes?: [number, number] | undefined;
  /** No file is larger, in bytes. */
  maxSize?: number | undefined;
};

/** The total size of a larger library is estimated from the sizes of this many assets. */
const SAMPLE = 10_000;

/** Any number of assets of any size. Nothing is stored: assets and bytes are computed from their number. 0 is the newest. */
export class Synthetic implements Source {
  readonly company: Company;
  readonly #options: Options;
  readonly #projects: Project[];
  /** Milliseconds between two uploads. */
  readonly #step: number;

  constructor(options: Options) {
    const { count, seed } = options;
    const companyId = `cmp_synthetic_${seed}`;
    this.company = { id: companyId, name: `Synthetic ${seed}` };
    this.#options = options;
    this.#projects = Array.from({ length: PROJECTS }, (_, i) => ({
      id: `prj_synthetic_${seed}_${i}`,
      companyId,
      name: `Project ${i + 1}`,
      status: 'active',
    }));
    this.#step = Math.max(1, Math.floor(SPREAD / Math.max(1, count)));
  }

  projects(companyId: string): Project[] {
    return companyId === this.company.id ? this.#projects : [];
  }

  find(id: string): Asset | undefined {
    const i = Number(/^ast_-?\d+_(\d{1,12})$/.exec(id)?.[1]);
    return i < this.#options.count && this.#id(i) === id ? this.#asset(i) : undefined;
  }

  list({ companyId, limit, after, since, assetType, projectId }: Query, isHidden: (id: string) => boolean): Asset[] {
    const found: Asset[] = [];
    const isKnown = projectId === null || this.#projects.some(({ id }) => id === projectId);
    if (companyId !== this.company.id || !isKnown) return found;
    for (let i = after ? this.#firstAfter(after) : 0; i < this.#options.count && found.length < limit; i++) {
      if (since !== null && this.#date(i) <= since) break;
      if (assetType !== null && this.#kind(i).assetType !== assetType) continue;
      if (projectId !== null && this.#project(i).id !== projectId) continue;
      if (!isHidden(this.#id(i))) found.push(this.#asset(i));
    }
    return found;
  }

  #asset(i: number): Asset {
    const { seed } = this.#options;
    const random = randomFrom(hash(seed, i, 3));
    const { assetType, extension, mimeType } = this.#kind(i);
    const size = this.#size(i, random);
    const filename = nameOf(assetType, extension, i, random);
    const { id, name } = this.#project(i);
    const isTimed = /^(video|audio)/.test(mimeType);
    const isUnavailable = hasNoFile(i);
    const duration = isTimed ? Math.round(1000 * (2 + size / 1e6)) / 1000 : null;
    const body = (type: string, name: string, size: number) => (): Body => bodyOf(type, [generated(name, size)]);
    return {
      ...newAsset({
        id: this.#id(i),
        uploadDate: this.#date(i),
        companyId: this.company.id,
        project: { id, name },
        name: filename,
        mimeType,
        assetType,
        tags: tagsOf(random),
        status: isUnavailable ? 'unavailable' : 'ready',
        size: isUnavailable ? 0 : size,
        duration,
        width: isVideo(mimeType) ? 1920 : mimeType.startsWith('image/') ? 4000 : null,
        height: isVideo(mimeType) ? 1080 : mimeType.startsWith('image/') ? 3000 : null,
        original: isUnavailable ? null : body(mimeType, `${seed} ${i}`, size),
        originalGone: isVideo(mimeType) && i % 50 === 49,
        mp4: isVideo(mimeType) ? body('video/mp4', `${seed} ${i} mp4`, Math.ceil(size / 3)) : null,
        thumbnail: placeholder(`${seed} ${i}`),
        hasTranscript: isTimed,
      }),
      // A getter, because a transcript may have thousands of words, and listings need none.
      get transcript() {
        return isTimed ? speech(`${seed} ${i}`, Math.min(duration ?? 0, 3600), i % 2 === 0) : null;
      },
    };
  }

  /** Bytes of all files. */
  get bytes(): number {
    const { count, seed } = this.#options;
    const step = Math.max(1, count / SAMPLE);
    let sum = 0;
    for (let at = 0; at < count; at += step) {
      const i = Math.floor(at);
      if (!hasNoFile(i)) sum += this.#size(i, randomFrom(hash(seed, i, 3)));
    }
    return Math.round(sum * step);
  }

  #size(i: number, random: Random): number {
    const { sizes, maxSize = Number.POSITIVE_INFINITY } = this.#options;
    const [smallest, largest] = sizes ?? this.#kind(i).sizes;
    return Math.min(maxSize, Math.round(smallest * (largest / smallest) ** random.next()));
  }

  #id(i: number): string {
    return `ast_${this.#options.seed}_${i}`;
  }

  #date(i: number): number {
    return NEWEST - i * this.#step - (hash(this.#options.seed, i, 0) % this.#step);
  }

  #kind(i: number): (typeof KINDS)[number] {
    return SLOTS[hash(this.#options.seed, i, 1) % SLOTS.length]!;
  }

  #project(i: number): Project {
    return this.#projects[hash(this.#options.seed, i, 2) % PROJECTS]!;
  }

  #firstAfter(after: Position): number {
    let i = Math.max(0, Math.floor((NEWEST - after.uploadDate) / this.#step) - 1);
    while (i < this.#options.count && newestFirst({ id: this.#id(i), uploadDate: this.#date(i) }, after) <= 0) i++;
    return i;
  }
}

const hasNoFile = (i: number) => i % 1000 === 999;

/** A fast hash of three numbers (the finalizer of MurmurHash3), below 2^32. */
function hash(seed: number, i: number, salt: number): number {
  let h = Math.imul(seed ^ Math.imul(salt + 1, 0x9e3779b1), 0x85ebca6b) ^ (i >>> 0) ^ Math.floor(i / 2 ** 32);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
