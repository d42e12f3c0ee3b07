import { mkdir, open, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { Rejected, StorageUnavailable } from '../../floor/errors.ts';
import type { StoredObject } from '../storage.ts';
import { classify, codeOf, isMissing } from './errors.ts';
import { caseCheck, ignoresCase } from './letter-case.ts';

/** Contains drafts; never listed, and swept when the store is opened. */
export const draftFolder = '.asset-mirror-tmp';

/** How many folders are remembered as synced; a folder that is not remembered is synced once more. */
const mostSyncedFolders = 10_000;

/** The directory of a store, and the disk it must be on. */
export class Root {
  readonly path: string;
  readonly drafts: string;
  /** Whether content hashes are computed. */
  readonly hashes: boolean;
  #made = false;
  /** Undefined until the first use decides: the disk may not be mounted yet. */
  #device: number | undefined;
  readonly #letterCase;
  #caseOfDevice: { device: number | undefined; ignored: boolean } | undefined;
  /** Folders, relative to the root, whose own entries are known to be on the disk. */
  readonly #syncedFolders = new Set<string>();

  constructor(path: string, hashes: boolean) {
    this.path = path;
    this.hashes = hashes;
    this.drafts = join(path, draftFolder);
    this.#letterCase = caseCheck(path);
  }

  /** @throws if it is not a key */
  fileOf(key: string): string {
    const segments = key.split('/');
    if (segments.some((s) => s === '' || s === '.' || s === '..' || s.includes('\0')) || segments[0] === draftFolder) {
      throw new Error(`not a key: ${JSON.stringify(key)}`);
    }
    return join(this.path, key);
  }

  /** Classifies the errors of file system calls; errors of a body must not pass through here. */
  async onDisk<T>(work: Promise<T>): Promise<T> {
    return work.catch((error) => {
      throw classify(error, this.path);
    });
  }

  async prepare(): Promise<void> {
    await this.#make();
    this.#device = await this.sameDisk();
    await mkdir(this.drafts).catch((error) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }

  /** Makes the root, once: if it is missing later, its disk may be unmounted, and must not be replaced by a new directory. */
  async #make(): Promise<void> {
    if (!this.#made) await mkdir(this.path, { recursive: true });
    this.#made = true;
  }

  /** @throws if another disk is mounted than before: files written below an empty mount point would be hidden later */
  async sameDisk(): Promise<number> {
    const root = await stat(this.path);
    if (!root.isDirectory()) throw new StorageUnavailable(`${this.path}: a file has the path of the directory`);
    const { dev } = root;
    if (dev !== (this.#device ?? dev)) {
      throw new StorageUnavailable(
        `${this.path}: another disk is mounted than before; mount the right one or, if this is the right one, restart`,
      );
    }
    return dev;
  }

  /** The disk of the next use is the right one. */
  forgetDisk(): void {
    this.#device = undefined;
  }

  async rememberDisk(): Promise<void> {
    this.#device = (await this.onDisk(stat(this.path))).dev;
  }

  /** @throws if the disk is not mounted: then a missing file does not mean that there is no object */
  async checkMounted(): Promise<void> {
    await this.onDisk(this.#make().then(() => this.sameDisk()));
  }

  async describe(key: string): Promise<StoredObject | undefined> {
    try {
      const entry = await stat(this.fileOf(key));
      return entry.isFile() ? { key, bytes: entry.size, etag: undefined, modified: entry.mtime } : undefined;
    } catch (error) {
      if (!isMissing(error)) throw classify(error, this.path);
      await this.checkMounted();
      return undefined;
    }
  }

  /**
   * Syncs the folder of a key, and each folder above it until one whose own entry is known to be on the disk: another process
   * may have made them, and died before it synced them. `firstMade`: the first folder that the caller made for this key.
   */
  async syncPath(key: string, firstMade?: string): Promise<void> {
    const synced: string[] = [];
    for (let folder = dirname(key); ; folder = dirname(folder)) {
      const path = join(this.path, folder);
      await syncDirectory(path);
      const isNew = firstMade !== undefined && path.length >= firstMade.length;
      if (folder === '.' || (!isNew && this.#syncedFolders.has(folder))) break;
      synced.push(folder);
    }
    if (this.#syncedFolders.size > mostSyncedFolders) this.#syncedFolders.clear();
    for (const folder of synced) this.#syncedFolders.add(folder);
  }

  /** See `Storage.stamp`. */
  async stamp(key: string): Promise<string | undefined> {
    try {
      const [root, file] = await Promise.all([stat(this.path), stat(this.fileOf(key), { bigint: true })]);
      // A new directory may get the inode of the old one, but a new file has another time of change.
      return `${root.dev}:${root.ino} ${file.dev}:${file.ino}:${file.ctimeNs}`;
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw classify(error, this.path);
    }
  }

  async ignoresCase(): Promise<boolean> {
    if (!this.#caseOfDevice || this.#caseOfDevice.device !== this.#device) {
      this.#caseOfDevice = { device: this.#device, ignored: await ignoresCase(this.drafts) };
    }
    return this.#caseOfDevice.ignored;
  }

  /** The path of another key that differs only in case, on a file system that ignores case. */
  async otherInPlaceOf(key: string): Promise<string | undefined> {
    return (await this.ignoresCase()) ? this.#letterCase.other(key) : undefined;
  }

  async refuseOther(key: string): Promise<void> {
    const other = await this.otherInPlaceOf(key);
    if (other === undefined) return;
    throw new Rejected({ code: 'key_refused', key, problem: 'differs_in_case', other });
  }
}

async function syncDirectory(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync().catch((error) => {
      // Some file systems cannot sync a directory.
      if (!['EINVAL', 'ENOTSUP'].includes(codeOf(error))) throw error;
    });
  } finally {
    await handle.close();
  }
}
