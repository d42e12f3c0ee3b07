import { readdir, rm, stat, statfs, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { StorageUnavailable } from '../../floor/errors.ts';
import type { Meter } from '../meter.ts';
import type { OpenUpload, Sweep } from '../storage.ts';
import { classify, codeOf } from './errors.ts';
import type { Root } from './root.ts';

/** A draft that was not touched for this long belongs to a process that died. */
const abandonedMs = 60 * 60 * 1000;
/** An upload in parts is abandoned after this time: until then, a later process may resume it. */
const abandonedUploadMs = 7 * 24 * 60 * 60 * 1000;
/** How often a process touches its drafts: a body may be slow, or pause for any time. */
const touchMs = 10 * 60 * 1000;

/** Smaller bodies are written without a check of the free space, which would take longer than the write. */
const large = 4 * 2 ** 20;
/** Free space that stays reserved for records and other small objects. */
const spare = 2 ** 20;

/** A body that is being written, and the bytes that are reserved for it. */
interface Claim {
  key: string;
  draft: string;
  bytes: number;
  meter: Pick<Meter, 'passed' | 'bodyError'>;
  signal?: AbortSignal | undefined;
}

/** The files that are being written to a store. Other processes may have drafts in the same folder. */
export class Drafts {
  readonly #root: Root;
  /** The drafts of this process. */
  readonly #underWay = new Set<Claim>();
  readonly #timer: NodeJS.Timeout;

  constructor(root: Root, everyMs = touchMs) {
    this.#root = root;
    this.#timer = setInterval(() => this.#touch(), everyMs).unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #touch(): Promise<void> {
    const now = new Date();
    for (const { draft } of this.#underWay) await utimes(draft, now, now).catch(() => {});
    await this.sweep().catch(() => {});
  }

  /**
   * Runs the work that writes a draft, which is not swept meanwhile.
   * @throws the reason of the signal, an error of the body as it is, or the classified error of the work
   */
  async withDraft<T>(claim: Claim, work: () => Promise<T>, undo?: () => Promise<void>): Promise<T> {
    try {
      claim.signal?.throwIfAborted();
      await this.#root.prepare();
      this.#underWay.add(claim);
      return await work();
    } catch (error) {
      await undo?.();
      this.#underWay.delete(claim);
      claim.signal?.throwIfAborted();
      throw claim.meter.bodyError ?? (await this.#ifFull(claim, classify(error, this.#root.path)));
    } finally {
      this.#underWay.delete(claim);
    }
  }

  /** @throws StorageUnavailable if the disk has not enough space for the claim */
  async ensureSpace({ key, bytes }: Claim): Promise<void> {
    if (bytes < large || (await this.#freeBytes()) >= spare) return;
    await this.sweep();
    const free = await this.#freeBytes();
    if (free >= spare) return;
    const [needed, usable] = [bytes, Math.max(0, free + bytes - spare)].map(mebibytes);
    throw new StorageUnavailable(
      `${this.#root.path}: not enough space for ${key}: it needs ${needed}, and ${usable} are free`,
      {
        scope: 'object',
      },
    );
  }

  /** The error to throw: if the disk is full for this object, it may still have space for smaller ones. */
  async #ifFull({ key }: Claim, error: unknown): Promise<unknown> {
    if (!(error instanceof StorageUnavailable) || codeOf(error.cause) !== 'ENOSPC') return error;
    await this.sweep().catch(() => {});
    const free = await this.#freeBytes().catch(() => 0);
    if (free < spare) return error;
    const message = `${error.message}; it is too full for ${key}, but smaller objects still fit`;
    return new StorageUnavailable(message, { scope: 'object', cause: error.cause });
  }

  /** Free bytes on the disk, less what the bodies that are being written still need. */
  async #freeBytes(): Promise<number> {
    const { bavail, bsize, files, ffree } = await statfs(this.#root.path);
    if (files > 0 && ffree === 0) return 0;
    let left = bavail * bsize;
    for (const { bytes, meter } of this.#underWay) left -= Math.max(0, bytes - meter.passed);
    return left;
  }

  /**
   * Removes abandoned drafts: each process touches its own. `olderThan`: a draft that is no upload in parts and was not
   * touched since is abandoned as well.
   */
  async sweep(olderThan = new Date(0)): Promise<void> {
    const mine = this.#mine();
    for (const name of await readdir(this.#root.drafts)) {
      const draft = join(this.#root.drafts, name);
      const touched = await stat(draft).catch(() => undefined);
      if (!touched || mine.has(draft)) continue;
      const inParts = /\.(upload|parts)$/.test(name);
      const patience = inParts ? abandonedUploadMs : abandonedMs;
      if (Date.now() - touched.mtimeMs < patience && (inParts || touched.mtime >= olderThan)) continue;
      await rm(draft, { force: true });
    }
  }

  /** The ids of uploads in parts that are abandoned. */
  async abandonedUploads({ olderThan, strays, signal }: Sweep): Promise<Set<string>> {
    const mine = this.#mine();
    const old = (await this.#root.onDisk(this.#openUploads())).filter(
      ({ id, begun }) => begun < olderThan && !mine.has(join(this.#root.drafts, `${id}.upload`)),
    );
    signal?.throwIfAborted();
    return strays(old, { shared: false });
  }

  #mine(): Set<string> {
    return new Set([...this.#underWay].map(({ draft }) => draft));
  }

  /** Uploads in parts by their drafts and lines. Each stored part touches at least one of the two files. */
  async #openUploads(): Promise<(OpenUpload & { begun: Date })[]> {
    const touched = new Map<string, Date>();
    for (const name of await readdir(this.#root.drafts)) {
      const id = /^(.+)\.(upload|parts)$/.exec(name)?.[1];
      const { mtime } = (id && (await stat(join(this.#root.drafts, name)).catch(() => undefined))) || {};
      if (id && mtime && mtime > (touched.get(id) ?? new Date(0))) touched.set(id, mtime);
    }
    return [...touched].map(([id, begun]) => ({ id, begun }));
  }
}

const mebibytes = (bytes: number) => `${Math.round(bytes / 2 ** 20).toLocaleString('en')} MiB`;
