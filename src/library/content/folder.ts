import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { open, opendir, stat } from 'node:fs/promises';
import { basename, join, resolve, sep } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import mime from 'mime';
import { createMemory, type Source } from '../catalogue.ts';
import { ASSET_TYPES, type Asset, type Company, isVideo } from '../model.ts';
import type { Body } from './body.ts';
import { factsOf } from './facts/facts.ts';

const INTERVAL = 1000;
/** A file that was written to a moment ago may still grow. */
const SETTLED_AFTER = 2000;
const AT_ONCE = 32;
const LARGEST_THUMBNAIL = 256 * 1024;

type File = { path: string; size: number; mtimeMs: number };
type Known = { stamp: string; isTaken: boolean };

/**
 * A folder as a company's library: its subfolders are projects, and files that come, change or go while it is open are
 * uploads, replacements and deletions. A file appears when it has stopped growing. Names that begin with a dot, and
 * links, are left out.
 */
export async function openFolder(
  directory: string,
  now: () => number,
  transcodeDelay: number,
): Promise<{ company: Company; source: Source; close: () => Promise<void> }> {
  const root = resolve(directory);
  if (!(await stat(root)).isDirectory()) throw new Error(`${root} is no folder`);
  const company = { id: `cmp_${hash(root)}`, name: basename(root) };
  const memory = createMemory();
  const known = new Map<string, Known>();
  const stop = new AbortController();

  async function scan(isFirst: boolean): Promise<void> {
    const seen = new Set<string>();
    let batch: Promise<void>[] = [];
    for await (const file of walk(root)) {
      seen.add(file.path);
      batch.push(look(file, isFirst));
      if (batch.length === AT_ONCE) {
        await Promise.all(batch);
        batch = [];
        if (stop.signal.aborted) return;
      }
    }
    await Promise.all(batch);
    for (const path of known.keys()) {
      if (seen.has(path)) continue;
      known.delete(path);
      memory.remove(idOf(path));
    }
  }

  async function look(file: File, isFirst: boolean): Promise<void> {
    const before = known.get(file.path);
    const stamp = stampOf(file);
    if (before?.stamp === stamp && before.isTaken) return;
    const isTaken = before?.stamp === stamp || Date.now() - file.mtimeMs > SETTLED_AFTER;
    known.set(file.path, { stamp, isTaken });
    if (!isTaken) return;
    const uploadDate = isFirst ? Math.floor(Math.min(file.mtimeMs, now())) : now();
    const asset = await assetOf(root, company.id, file, uploadDate).catch(() => undefined);
    if (!asset) {
      // Gone again, or not for us to read: another look may find it different.
      known.delete(file.path);
      return;
    }
    if (!isFirst && isVideo(asset.mimeType) && transcodeDelay > 0) {
      asset.status = 'processing';
      asset.readyAt = uploadDate + transcodeDelay;
    }
    addProject(asset.project);
    memory.put(asset);
  }

  function addProject(project: Asset['project']): void {
    if (!project || memory.projects(company.id).some(({ id }) => id === project.id)) return;
    memory.addProject({ ...project, companyId: company.id, status: 'active' });
  }

  async function watch(): Promise<void> {
    while (!stop.signal.aborted) {
      const start = performance.now();
      // A folder that cannot be read now, say on a disk that was unplugged, has not lost its files.
      await scan(false).catch(() => {});
      // A large folder is looked through less often, so that looking never takes much of the time.
      const rest = Math.max(INTERVAL, 10 * (performance.now() - start));
      await pause(rest, undefined, { signal: stop.signal }).catch(() => {});
    }
  }

  await scan(true);
  const watching = watch();
  return {
    company,
    source: memory,
    close: () => {
      stop.abort();
      return watching;
    },
  };
}

async function* walk(root: string, under = ''): AsyncGenerator<File> {
  for await (const entry of await opendir(join(root, under))) {
    if (entry.name.startsWith('.')) continue;
    const path = under ? `${under}${sep}${entry.name}` : entry.name;
    if (entry.isDirectory()) yield* walk(root, path);
    if (!entry.isFile()) continue;
    const found = await stat(join(root, path)).catch(() => undefined);
    if (found?.isFile()) yield { path, size: found.size, mtimeMs: found.mtimeMs };
  }
}

async function assetOf(root: string, companyId: string, file: File, uploadDate: number): Promise<Asset> {
  const name = basename(file.path);
  const folders = file.path.split(sep).slice(0, -1);
  const mimeType = mime.getType(name) ?? 'application/octet-stream';
  const body = bodyOfFile(join(root, file.path), file, mimeType);
  const facts = await readFacts(join(root, file.path), file.size, mimeType);
  const isPicture = /^image\/(jpeg|png|gif|webp)$/.test(mimeType);
  return {
    id: idOf(file.path),
    companyId,
    project: folders[0] === undefined ? null : { id: `prj_${hash(folders[0])}`, name: folders[0] },
    name,
    filename: name,
    mimeType,
    assetType: assetTypeOf(mimeType, folders),
    tags: folders.slice(1),
    uploadDate,
    status: 'ready',
    readyAt: null,
    size: file.size,
    duration: facts.duration ?? null,
    width: facts.width ?? null,
    height: facts.height ?? null,
    original: () => body,
    originalGone: false,
    // There is no transcoder here; what is an MP4 already is its own best version.
    mp4: mimeType === 'video/mp4' ? () => body : null,
    thumbnail: isPicture && file.size <= LARGEST_THUMBNAIL ? () => body : null,
    transcript: null,
    transcriptAt: 0,
    hasTranscript: null,
    override: {},
    overrideDetail: {},
    omit: [],
  };
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

function bodyOfFile(path: string, file: File, type: string): Body {
  return {
    size: file.size,
    etag: `"${hash(stampOf(file) + path)}"`,
    type,
    async *chunks(start, end) {
      if (start >= end) return;
      const found = await stat(path);
      if (stampOf(found) !== stampOf(file)) throw new Error(`${path} has changed`);
      yield* createReadStream(path, { start, end: end - 1, highWaterMark: 256 * 1024 });
    },
  };
}

async function readFacts(path: string, size: number, mimeType: string) {
  if (!/^(image|video|audio)\//.test(mimeType)) return {};
  const handle = await open(path);
  try {
    const read = async (offset: number, length: number) => {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(Math.min(length, size)), 0, undefined, offset);
      return buffer.subarray(0, bytesRead);
    };
    return await factsOf(read, size, mimeType);
  } finally {
    await handle.close();
  }
}

function stampOf({ size, mtimeMs }: { size: number; mtimeMs: number }): string {
  return `${size} ${mtimeMs}`;
}

function idOf(path: string): string {
  return `ast_${hash(path)}`;
}

function hash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 20);
}
