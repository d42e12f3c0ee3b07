import { stat } from 'node:fs/promises';
import { basename, resolve, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Memory, type Query, type Source } from '../../catalogue.ts';
import type { Store } from '../../database/store.ts';
import { type File, keyOf } from '../../database/tables.ts';
import { type Asset, type Company, isVideo, type Project } from '../../model.ts';
import { assetIdOf, assetOf, companyIdOf, mimeTypeOf, projectOf } from './asset.ts';
import { type Found, metadataOf, stampOf, walk } from './files.ts';

const INTERVAL_MS = 1000;
/** A file that was written more recently may still grow. */
const SETTLED_AFTER_MS = 2000;
const BATCH = 256;

type Options = {
  now: () => number;
  transcodeDelay: number;
  store: Store;
  log: (line: object) => void;
};

type Scan = {
  /** The scan at the start of the process. */
  isStart: boolean;
  /** Nothing is stored of the folder: the upload date of a file is its modification date. */
  isFirstEver: boolean;
};

/**
 * A folder as a company. Subfolders are projects. New, changed and deleted files are uploads, replacements and deletions,
 * also while the library was not running. Files appear when they have stopped growing.
 */
export class Folder implements Source {
  readonly company: Company;
  readonly #root: string;
  readonly #options: Options;
  readonly #memory = new Memory();
  /** The files of the latest scan. One that may still grow is not taken. */
  readonly #known = new Map<string, { stamp: string; isTaken: boolean }>();
  readonly #warned = new Set<string>();
  readonly #stop = new AbortController();
  #projects: Project[] = [];
  #watching: Promise<void> = Promise.resolve();

  private constructor(root: string, options: Options) {
    this.#root = root;
    this.#options = options;
    this.company = { id: companyIdOf(root), name: basename(root) };
  }

  static async open(directory: string, options: Options): Promise<Folder> {
    const root = resolve(directory);
    if (!(await stat(root)).isDirectory()) throw new Error(`${root} is not a folder.`);
    const folder = new Folder(root, options);
    await folder.#scan(true);
    folder.#watching = folder.#watch();
    return folder;
  }

  projects(companyId: string): Project[] {
    return companyId === this.company.id ? this.#projects : [];
  }

  find(id: string): Asset | undefined {
    return this.#memory.find(id);
  }

  list(query: Query, isHidden: (id: string) => boolean): Asset[] {
    return this.#memory.list(query, isHidden);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      const start = performance.now();
      // If the folder cannot be read, for example on an unplugged disk, its files are not deleted.
      await this.#scan(false).catch((error) => this.#warn('.', error));
      // At most a tenth of the time is spent on scans.
      const rest = Math.max(INTERVAL_MS, 10 * (performance.now() - start));
      await pause(rest, undefined, { signal }).catch(() => {});
    }
  }

  async #scan(isStart: boolean): Promise<void> {
    const { store } = this.#options;
    const setting = `folder ${this.company.id}`;
    const scan = { isStart, isFirstEver: !store.rows('settings').has(setting) };
    const seen = new Set<string>();
    const skipped: string[] = [];
    const folders = new Set<string>();
    let batch: Found[] = [];
    const onSkipped = (path: string, reason: unknown) => {
      skipped.push(path);
      this.#warn(path, reason);
    };
    for await (const found of walk(this.#root, onSkipped)) {
      if (this.#stop.signal.aborted) return;
      if (found.path.includes(sep)) folders.add(found.path.slice(0, found.path.indexOf(sep)));
      if (found.path.endsWith(sep)) continue;
      seen.add(found.path);
      if (this.#isReady(found)) batch.push(found);
      if (batch.length === BATCH) {
        await this.#take(batch, scan);
        batch = [];
      }
    }
    await this.#take(batch, scan);
    const { id: companyId } = this.company;
    this.#projects = [...folders].sort().map((name) => ({ ...projectOf(name), companyId, status: 'active' }));
    const isSkipped = (path: string) => skipped.some((place) => path === place || path.startsWith(place + sep));
    await this.#remove((path) => !seen.has(path) && !isSkipped(path));
    await store.setting(setting, () => this.#root);
  }

  /** Whether a file is new or changed, and has stopped growing. */
  #isReady(found: Found): boolean {
    const before = this.#known.get(found.path);
    const stamp = stampOf(found);
    if (before?.stamp === stamp && before.isTaken) return false;
    const isSettled =
      before?.stamp === stamp || this.#stored(found) !== undefined || Date.now() - found.mtimeMs > SETTLED_AFTER_MS;
    if (!isSettled) this.#known.set(found.path, { stamp, isTaken: false });
    return isSettled;
  }

  /** Adds or replaces the assets of files. */
  async #take(batch: Found[], scan: Scan): Promise<void> {
    const { store, transcodeDelay } = this.#options;
    const files = await Promise.all(batch.map((found) => this.#stored(found) ?? this.#read(found, scan)));
    const readable = files.filter((file) => file !== undefined);
    const changed = new Set(readable.filter((file) => this.#row(file.path) !== file));
    await store.change((changes) => changes.put('files', ...changed));
    for (const file of readable) {
      const asset = assetOf(this.#root, file);
      if (!scan.isStart && changed.has(file) && isVideo(asset.mimeType) && transcodeDelay > 0) {
        asset.status = 'processing';
        asset.readyAt = file.uploadDate + transcodeDelay;
      }
      this.#memory.put(asset);
      this.#known.set(file.path, { stamp: stampOf(file), isTaken: true });
      this.#warned.delete(file.path);
    }
  }

  /** Undefined if the file cannot be read. The next scan tries again. */
  async #read(found: Found, { isStart, isFirstEver }: Scan): Promise<File | undefined> {
    const { path, size, mtimeMs } = found;
    try {
      const { duration = null, width = null, height = null } = await metadataOf(this.#root, found, mimeTypeOf(path));
      const now = this.#options.now();
      const uploadDate = isFirstEver && isStart ? Math.max(0, Math.floor(Math.min(mtimeMs, now))) : now;
      return { companyId: this.company.id, path, size, mtimeMs, uploadDate, duration, width, height };
    } catch (error) {
      this.#warn(path, error);
      return undefined;
    }
  }

  async #remove(isGone: (path: string) => boolean): Promise<void> {
    const { store } = this.#options;
    const stored = [...store.rows('files').values()].filter(({ companyId }) => companyId === this.company.id);
    const gone = [...new Set([...this.#known.keys(), ...stored.map(({ path }) => path)])].filter(isGone);
    const rows = gone.filter((path) => this.#row(path) !== undefined);
    await store.change((changes) => changes.delete('files', ...rows.map((path) => this.#key(path))));
    for (const path of gone) {
      this.#known.delete(path);
      this.#memory.remove(assetIdOf(path));
      this.#warned.delete(path);
    }
  }

  /** The stored row of a file that has not changed since. */
  #stored(found: Found): File | undefined {
    const row = this.#row(found.path);
    return row && stampOf(row) === stampOf(found) ? row : undefined;
  }

  #row(path: string): File | undefined {
    return this.#options.store.rows('files').get(this.#key(path));
  }

  #key(path: string): string {
    return keyOf('files', { companyId: this.company.id, path });
  }

  /** Warns once per file, not with each scan. */
  #warn(path: string, reason: unknown): void {
    const text = reason instanceof Error ? reason.message : reason;
    if (!this.#warned.has(path)) this.#options.log({ warning: 'file skipped', path, reason: text });
    this.#warned.add(path);
  }
}
