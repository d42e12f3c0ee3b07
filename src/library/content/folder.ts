import { stat } from 'node:fs/promises';
import { basename, resolve, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import mime from 'mime';
import { createMemory, type Source } from '../catalogue.ts';
import type { Store } from '../database/store.ts';
import { type File, keyOf } from '../database/tables.ts';
import { ASSET_TYPES, type Asset, type Company, isVideo, type Project } from '../model.ts';
import { bodyOfFile, type Found, hash, readFacts, stampOf, walk } from './files.ts';
import type { Facts } from './metadata/types.ts';
import { placeholder } from './thumbnail.ts';

const INTERVAL = 1000;
/** A file that was written to a moment ago may still grow. */
const SETTLED_AFTER = 2000;
const AT_ONCE = 256;
const LARGEST_THUMBNAIL = 256 * 1024;

type Known = { stamp: string; isTaken: boolean };

export type FolderOptions = {
  now: () => number;
  transcodeDelay: number;
  store: Store;
  log: (line: object) => void;
};

/**
 * A folder as a company's library: its subfolders are projects, and files that come, change or go are uploads,
 * replacements and deletions. A file appears when it has stopped growing. Names that begin with a dot, and links, are
 * left out.
 *
 * The files that are there at the very first look were uploaded when they were last written. What comes later is
 * uploaded when it is found, also when it was written long ago or while the library was not running: who asks what is
 * new `since` the last time has to see it.
 */
export async function openFolder(
  directory: string,
  { now, transcodeDelay, store, log }: FolderOptions,
): Promise<{ company: Company; source: Source; close: () => Promise<void> }> {
  const root = resolve(directory);
  if (!(await stat(root)).isDirectory()) throw new Error(`${root} is no folder`);
  const company = { id: `cmp_${hash(root)}`, name: basename(root) };
  const memory = createMemory();
  const known = new Map<string, Known>();
  const files = store.rows('files');
  const complaints = new Set<string>();
  const stop = new AbortController();
  let projects: Project[] = [];

  async function scan(isStart: boolean): Promise<void> {
    const isFirstEver = !store.rows('settings').has(`folder ${company.id}`);
    const seen = new Set<string>();
    const unseen: string[] = [];
    const folders = new Set<string>();
    let batch: Found[] = [];
    for await (const found of walk(root, (path, why) => unseen.push(complain(path, why)))) {
      if (found.path.includes(sep)) folders.add(found.path.slice(0, found.path.indexOf(sep)));
      if (found.isFolder) continue;
      seen.add(found.path);
      if (!isToBeTaken(found)) continue;
      batch.push(found);
      if (batch.length === AT_ONCE) {
        await take(batch, isStart, isFirstEver);
        batch = [];
      }
      if (stop.signal.aborted) return;
    }
    await take(batch, isStart, isFirstEver);
    projects = [...folders].sort().map((name) => ({ ...projectOf(name), companyId: company.id, status: 'active' }));
    await forget((path) => !seen.has(path) && !unseen.some((place) => path === place || path.startsWith(place + sep)));
    if (isFirstEver) {
      await store.change((changes) => changes.put('settings', { name: `folder ${company.id}`, value: root }));
    }
  }

  function isToBeTaken(found: Found): boolean {
    const before = known.get(found.path);
    const stamp = stampOf(found);
    if (before?.stamp === stamp && before.isTaken) return false;
    const isSettled =
      before?.stamp === stamp ||
      isAsKept(found, files.get(keyOfFile(found.path))) ||
      Date.now() - found.mtimeMs > SETTLED_AFTER;
    if (!isSettled) known.set(found.path, { stamp, isTaken: false });
    return isSettled;
  }

  async function take(batch: Found[], isStart: boolean, isFirstEver: boolean): Promise<void> {
    const taken = await Promise.all(
      batch.map(async (found) => {
        const kept = files.get(keyOfFile(found.path));
        if (isAsKept(found, kept)) return { found, file: kept! };
        try {
          const facts = await readFacts(root, found, mimeTypeOf(found.path));
          const uploadDate = isFirstEver && isStart ? Math.max(0, Math.floor(Math.min(found.mtimeMs, now()))) : now();
          return { found, file: fileOf(found, uploadDate, facts) };
        } catch (error) {
          // Gone again, or not for us to read: another look may find it different.
          complain(found.path, error);
          return undefined;
        }
      }),
    );
    const readable = taken.filter((one) => one !== undefined);
    const changed = readable.filter(({ file }) => files.get(keyOfFile(file.path)) !== file);
    await store.change((changes) => {
      if (changed.length > 0) changes.put('files', ...changed.map(({ file }) => file));
    });
    const isNew = new Set(changed);
    for (const one of readable) {
      const { found, file } = one;
      const asset = assetOf(root, company.id, found, file);
      if (!isStart && isNew.has(one) && isVideo(asset.mimeType) && transcodeDelay > 0) {
        asset.status = 'processing';
        asset.readyAt = file.uploadDate + transcodeDelay;
      }
      memory.put(asset);
      known.set(found.path, { stamp: stampOf(found), isTaken: true });
      complaints.delete(found.path);
    }
  }

  function fileOf({ path, size, mtimeMs }: Found, uploadDate: number, facts: Facts): File {
    const { duration = null, width = null, height = null } = facts;
    return { companyId: company.id, path, size, mtimeMs, uploadDate, duration, width, height };
  }

  async function forget(isGone: (path: string) => boolean): Promise<void> {
    const kept = [...files.values()].filter(({ companyId }) => companyId === company.id).map(({ path }) => path);
    const gone = [...new Set([...known.keys(), ...kept])].filter(isGone);
    await store.change((changes) => {
      const rows = gone.map(keyOfFile).filter((key) => files.has(key));
      if (rows.length > 0) changes.delete('files', ...rows);
    });
    for (const path of gone) {
      known.delete(path);
      memory.remove(idOf(path));
      complaints.delete(path);
    }
  }

  /** Once, not at every look. */
  function complain(path: string, why: unknown): string {
    if (!complaints.has(path)) log({ warning: 'not served', path, why: why instanceof Error ? why.message : why });
    complaints.add(path);
    return path;
  }

  function keyOfFile(path: string): string {
    return keyOf('files', { companyId: company.id, path } as File);
  }

  async function watch(): Promise<void> {
    while (!stop.signal.aborted) {
      const start = performance.now();
      // A folder that cannot be read now, say on a disk that was unplugged, has not lost its files.
      await scan(false).catch((error) => complain('.', error));
      // A large folder is looked through less often, so that looking never takes much of the time.
      const rest = Math.max(INTERVAL, 10 * (performance.now() - start));
      await pause(rest, undefined, { signal: stop.signal }).catch(() => {});
    }
  }

  await scan(true);
  const watching = watch();
  return {
    company,
    source: { ...memory, projects: (companyId) => (companyId === company.id ? projects : []) },
    close: () => {
      stop.abort();
      return watching;
    },
  };
}

function isAsKept(found: Found, kept: File | undefined): boolean {
  return kept !== undefined && stampOf(kept) === stampOf(found);
}

function assetOf(root: string, companyId: string, found: Found, file: File): Asset {
  const name = basename(file.path);
  const folders = file.path.split(sep).slice(0, -1);
  const mimeType = mimeTypeOf(file.path);
  const body = bodyOfFile(root, found, mimeType);
  const isPicture = /^image\/(jpeg|png|gif|webp)$/.test(mimeType);
  return {
    id: idOf(file.path),
    companyId,
    project: folders[0] === undefined ? null : projectOf(folders[0]),
    name,
    filename: name,
    mimeType,
    assetType: assetTypeOf(mimeType, folders),
    tags: folders.slice(1),
    uploadDate: file.uploadDate,
    status: 'ready',
    readyAt: null,
    size: file.size,
    duration: file.duration,
    width: file.width,
    height: file.height,
    original: () => body,
    originalGone: false,
    // There is no transcoder here; what is an MP4 already is its own best version.
    mp4: mimeType === 'video/mp4' ? () => body : null,
    thumbnail: isPicture && file.size <= LARGEST_THUMBNAIL ? () => body : placeholder(name),
    transcript: null,
    transcriptAt: 0,
    hasTranscript: null,
    override: {},
    overrideDetail: {},
    omit: [],
  };
}

function projectOf(folder: string): { id: string; name: string } {
  return { id: `prj_${hash(folder)}`, name: folder };
}

function mimeTypeOf(path: string): string {
  return mime.getType(path) ?? 'application/octet-stream';
}

/** A folder named like a type decides; otherwise the kind of file does. */
function assetTypeOf(mimeType: string, folders: string[]): string {
  const named = ASSET_TYPES.find((type) => folders.some((folder) => folder.toLowerCase() === type));
  if (named) return named;
  if (isVideo(mimeType)) return 'videos';
  if (mimeType.startsWith('audio/')) return 'audio';
  if (/^image\/(jpeg|heic|heif|tiff|webp|x-)/.test(mimeType)) return 'photography';
  return mimeType.startsWith('image/') ? 'graphics' : 'documents';
}

function idOf(path: string): string {
  return `ast_${hash(path)}`;
}
