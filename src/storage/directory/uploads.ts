import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, open, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { checksumsOfParts } from '../content-hash.ts';
import { measure, metered } from '../meter.ts';
import { type Part, partBytesFor, partLength, type Stored, type Upload, UploadLost, type Uploads } from '../storage.ts';
import type { Drafts } from './drafts.ts';
import { codeOf } from './errors.ts';
import type { Root } from './root.ts';
import { moveIntoPlace } from './write.ts';

/**
 * Uploads in parts to a directory. All parts are written into one draft, each at its offset; a second file has a line for each
 * part that is on the disk. The draft is renamed before the lines are removed: lines without a draft mean that the object was
 * completed.
 */
export function directoryUploads(root: Root, drafts: Drafts): Uploads {
  return {
    begin: (key, { bytes, signal }) => begin(root, drafts, key, bytes, signal),
    put: (upload, number, body, options) => put(root, drafts, upload, number, body, options?.signal),
    async list(upload, { signal } = {}) {
      signal?.throwIfAborted();
      const parts = await root.onDisk(storedParts(root, upload));
      if (!parts || !(await root.onDisk(hasDraft(root, upload)))) return undefined;
      return new Map([...parts.values()].map(({ number, bytes, etag }) => [number, { bytes, etag }]));
    },
    async complete(upload, parts, { signal } = {}) {
      signal?.throwIfAborted();
      return root.onDisk(complete(root, upload, parts, signal));
    },
    async abort(upload) {
      for (const path of [draftOf(root, upload), linesOf(root, upload)]) await root.onDisk(rm(path, { force: true }));
    },
  };
}

type Id = Pick<Upload, 'id'>;
const draftOf = (root: Root, { id }: Id) => join(root.drafts, `${id}.upload`);
const linesOf = (root: Root, { id }: Id) => join(root.drafts, `${id}.parts`);
const lost = ({ key }: Upload) => new UploadLost(`store ${key}: its draft was removed`);

async function begin(
  root: Root,
  drafts: Drafts,
  key: string,
  bytes: number,
  signal: AbortSignal | undefined,
): Promise<Upload> {
  const upload = { id: randomUUID(), key, bytes, partBytes: partBytesFor(bytes) };
  const claim = { key, draft: draftOf(root, upload), bytes, meter: { passed: 0, bodyError: undefined }, signal };
  return drafts.withDraft(claim, async () => {
    root.fileOf(key);
    await root.refuseOther(key);
    await drafts.ensureSpace(claim);
    for (const path of [linesOf(root, upload), claim.draft]) await writeFile(path, '', { flag: 'wx' });
    return upload;
  });
}

async function put(
  root: Root,
  drafts: Drafts,
  upload: Upload,
  number: number,
  body: Readable,
  signal: AbortSignal | undefined,
): Promise<Part> {
  const bytes = partLength(upload, number);
  const meter = metered(body, { expected: bytes, hashed: root.hashes, signal });
  const draft = draftOf(root, upload);
  try {
    return await drafts.withDraft({ key: upload.key, draft, bytes, meter, signal }, async () => {
      const file = await unlessMissing(open(draft, 'r+'));
      if (!file) throw lost(upload);
      // Closes the file also after an error.
      const target = file.createWriteStream({ start: (number - 1) * upload.partBytes, flush: true });
      await pipeline(meter, target);
      const { crc32 } = meter.checksums();
      const part = { number, bytes, etag: crc32, crc32, blocks: meter.blocks() };
      await appendFile(linesOf(root, upload), `${JSON.stringify(part)}\n`, { flush: true });
      return part;
    });
  } finally {
    body.destroy();
  }
}

async function complete(root: Root, upload: Upload, wanted: Part[], signal?: AbortSignal): Promise<Stored> {
  const { key, bytes } = upload;
  const parts = await storedParts(root, upload);
  if (!parts) throw lost(upload);
  for (const { number, etag } of wanted) {
    if (parts.get(number)?.etag !== etag) throw new Error(`store ${key}: part ${number} is not on the disk`);
  }
  const target = root.fileOf(key);
  const draft = draftOf(root, upload);
  const drafted = await unlessMissing(stat(draft));
  if (drafted) {
    if (drafted.size !== bytes) throw new Error(`store ${key}: the draft has ${drafted.size} bytes of ${bytes}`);
    await moveIntoPlace(root, draft, target, key);
  } else {
    // The process that moved it may have died before this.
    await unlessMissing(root.syncPath(key));
  }
  const checksums = checksumsOfParts(upload, wanted);
  const found = await root.describe(key);
  if (found?.bytes !== bytes) throw lost(upload);
  // Without a draft, the file at the key may be another one of this length.
  if (!drafted && (await measure(createReadStream(target), signal)).crc32 !== checksums.crc32) throw lost(upload);
  await rm(linesOf(root, upload), { force: true });
  return { key, bytes, etag: undefined, checksums };
}

const hasDraft = async (root: Root, upload: Upload) => (await unlessMissing(stat(draftOf(root, upload)))) !== undefined;

async function storedParts(root: Root, upload: Upload): Promise<Map<number, Part> | undefined> {
  const text = await unlessMissing(readFile(linesOf(root, upload), 'utf8'));
  // A power cut may leave half of the last line, or garbage in it.
  const lines = text?.split('\n').slice(0, -1);
  return lines && new Map(lines.flatMap(partOf).map((part) => [part.number, part]));
}

/** The part that a line records; none if the line is damaged. */
function partOf(line: string): Part[] {
  try {
    return [JSON.parse(line)];
  } catch {
    return [];
  }
}

const unlessMissing = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch((error) => {
    if (codeOf(error) !== 'ENOENT') throw error;
    return undefined;
  });
