import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, open, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32Of } from '../crc32.ts';
import { measure, metered } from '../meter.ts';
import {
  type Part,
  partBytesFor,
  partLength,
  type StoredObject,
  type Upload,
  UploadLost,
  type Uploads,
} from '../storage.ts';

/** What an upload needs of the directory that it is in. */
export interface Directory {
  /** The folder of drafts. */
  temporary: string;
  prepare(): Promise<void>;
  /** Classifies the errors of file system calls. */
  onDisk<T>(work: Promise<T>): Promise<T>;
  /** Where the object of a key lies. @throws when it is no key */
  fileOf(key: string): string;
  /** Moves a draft to its place, for good. */
  place(draft: string, target: string, key: string): Promise<void>;
  describe(key: string): Promise<StoredObject | undefined>;
  /** @throws StorageUnavailable when so many bytes have no room */
  makeRoomFor(claim: Claim, key: string): Promise<void>;
  noRoomFor(key: string, error: unknown): Promise<unknown>;
  underWay: Set<Claim>;
}

/** A body that is being written, and the bytes that are reserved for it. */
export interface Claim {
  draft: string;
  bytes: number;
  meter: { passed: number };
}

/**
 * Uploads in parts to a directory. All parts are written into one draft, each at its place; a line in a second file says of
 * each that it is on the disk. The draft is renamed first and the lines go last, so lines without a draft are an upload
 * whose object is in its place.
 */
export function directoryUploads(directory: Directory): Uploads {
  const { temporary, onDisk, underWay } = directory;
  const draftOf = ({ id }: Pick<Upload, 'id'>) => join(temporary, `${id}.upload`);
  const linesOf = ({ id }: Pick<Upload, 'id'>) => join(temporary, `${id}.parts`);
  const isMissing = (error: unknown) => (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT';
  const lost = ({ key }: Upload) => new UploadLost(`store ${key}: its draft is gone`);

  async function parts(upload: Upload): Promise<Map<number, Part> | undefined> {
    const text = await readFile(linesOf(upload), 'utf8').catch((error) => {
      if (!isMissing(error)) throw error;
      return undefined;
    });
    if (text === undefined) return undefined;
    // A power cut may leave half of the last line, or garbage in it.
    const lines = text.split('\n').slice(0, -1);
    return new Map(lines.flatMap(partOf).map((part) => [part.number, part]));
  }

  const hasDraft = (upload: Upload) =>
    stat(draftOf(upload)).then(
      () => true,
      (error) => {
        if (!isMissing(error)) throw error;
        return false;
      },
    );

  return {
    async begin(key, { bytes, signal }) {
      signal?.throwIfAborted();
      directory.fileOf(key);
      const upload = { id: randomUUID(), key, bytes, partBytes: partBytesFor(bytes) };
      await onDisk(directory.prepare());
      const claim = { draft: draftOf(upload), bytes, meter: { passed: 0 } };
      underWay.add(claim);
      try {
        await onDisk(directory.makeRoomFor(claim, key));
        for (const path of [linesOf(upload), draftOf(upload)])
          await onDisk(open(path, 'wx').then((file) => file.close()));
      } finally {
        underWay.delete(claim);
      }
      return upload;
    },

    async put(upload, number, body, { signal } = {}) {
      const bytes = partLength(upload, number);
      const meter = metered(body, { expected: bytes, signal });
      const claim = { draft: draftOf(upload), bytes, meter };
      underWay.add(claim);
      try {
        signal?.throwIfAborted();
        await onDisk(directory.prepare());
        const file = await onDisk(
          open(draftOf(upload), 'r+').catch((error) => {
            throw isMissing(error) ? lost(upload) : error;
          }),
        );
        try {
          let position = (number - 1) * upload.partBytes;
          for await (const chunk of meter as AsyncIterable<Buffer>) {
            await onDisk(writeAll(file, chunk, position));
            position += chunk.length;
          }
          await onDisk(file.datasync());
        } finally {
          await file.close();
        }
        const { crc32 } = meter.checksums();
        const part = { number, bytes, etag: crc32, crc32 };
        await onDisk(appendFile(linesOf(upload), `${JSON.stringify(part)}\n`, { flush: true }));
        return part;
      } catch (error) {
        underWay.delete(claim);
        signal?.throwIfAborted();
        throw meter.bodyError ?? (await directory.noRoomFor(upload.key, error)) ?? error;
      } finally {
        underWay.delete(claim);
        body.destroy();
      }
    },

    async list(upload, { signal } = {}) {
      signal?.throwIfAborted();
      if (!(await onDisk(hasDraft(upload)))) return undefined;
      const there = await onDisk(parts(upload));
      return there && new Map([...there.values()].map(({ number, bytes, etag }) => [number, { bytes, etag }]));
    },

    async complete(upload, wanted, { signal } = {}) {
      signal?.throwIfAborted();
      const { key, bytes } = upload;
      const there = await onDisk(parts(upload));
      if (!there) throw lost(upload);
      for (const { number, etag } of wanted) {
        if (there.get(number)?.etag !== etag) throw new Error(`store ${key}: part ${number} is not on the disk`);
      }
      const drafted = await onDisk(hasDraft(upload));
      if (drafted) {
        const draft = draftOf(upload);
        const { size } = await onDisk(stat(draft));
        if (size !== bytes) throw new Error(`store ${key}: the draft has ${size} bytes of ${bytes}`);
        await onDisk(directory.place(draft, directory.fileOf(key), key));
      }
      const crc32 = crc32Of(wanted);
      const found = await directory.describe(key);
      if (found?.bytes !== bytes) throw lost(upload);
      // Renamed before, or never there: then another file of this length may lie at the key.
      if (!drafted && (await onDisk(measure(createReadStream(directory.fileOf(key)), signal))).crc32 !== crc32) {
        throw lost(upload);
      }
      await onDisk(rm(linesOf(upload), { force: true }));
      return { key, bytes, etag: undefined, checksums: { crc32 } };
    },

    async abort(upload) {
      for (const path of [draftOf(upload), linesOf(upload)]) await onDisk(rm(path, { force: true }));
    },
  };
}

async function writeAll(file: Awaited<ReturnType<typeof open>>, chunk: Buffer, position: number): Promise<void> {
  for (let written = 0; written < chunk.length; ) {
    written += (await file.write(chunk, written, chunk.length - written, position + written)).bytesWritten;
  }
}

/** The part that a line records; none if the line is damaged. */
function partOf(line: string): Part[] {
  try {
    return [JSON.parse(line)];
  } catch {
    return [];
  }
}
