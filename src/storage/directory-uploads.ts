import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { appendFile, open, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { handBack } from '../buffers.ts';
import { crc32Of } from './crc32.ts';
import { Meter, measure, openBody } from './meter.ts';
import {
  type Part,
  partBytesFor,
  partLength,
  type StoredObject,
  type Upload,
  UploadLost,
  type Uploads,
} from './storage.ts';

/** What an upload needs of the directory that it is in. */
export interface Yard {
  /** Where drafts lie. */
  temporary: string;
  prepare(): Promise<void>;
  /** Sorts what the disk says. */
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

/** A body on its way to the disk, and what was promised to it. */
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
export function directoryUploads(yard: Yard): Uploads {
  const { temporary, onDisk, underWay } = yard;
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
    // A line is whole when the next has begun; what a power cut left of the last one is none.
    const lines = text.split('\n').slice(0, -1);
    return new Map(
      lines
        .filter(isWhole)
        .map((line) => JSON.parse(line) as Part)
        .map((part) => [part.number, part]),
    );
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
      yard.fileOf(key);
      const upload = { id: randomUUID(), key, bytes, partBytes: partBytesFor(bytes) };
      await onDisk(yard.prepare());
      const claim = { draft: draftOf(upload), bytes, meter: { passed: 0 } };
      underWay.add(claim);
      try {
        await onDisk(yard.makeRoomFor(claim, key));
        for (const path of [linesOf(upload), draftOf(upload)])
          await onDisk(open(path, 'wx').then((file) => file.close()));
      } finally {
        underWay.delete(claim);
      }
      return upload;
    },

    async put(upload, number, body, { signal } = {}) {
      const bytes = partLength(upload, number);
      const flow = openBody(body, signal);
      const { breaker } = flow;
      const meter = new Meter({ expected: bytes, md5: false });
      const claim = { draft: draftOf(upload), bytes, meter };
      underWay.add(claim);
      try {
        breaker.signal.throwIfAborted();
        await onDisk(yard.prepare());
        const file = await onDisk(
          open(draftOf(upload), 'r+').catch((error) => {
            throw isMissing(error) ? lost(upload) : error;
          }),
        );
        try {
          flow.flowInto(meter);
          let position = (number - 1) * upload.partBytes;
          for await (const chunk of meter as AsyncIterable<Buffer>) {
            await onDisk(writeAll(file, chunk, position)).catch((error) => {
              breaker.abort(error);
              throw error;
            });
            position += chunk.length;
            handBack(chunk);
          }
          breaker.signal.throwIfAborted();
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
        const reason = breaker.signal.aborted ? breaker.signal.reason : error;
        throw (await yard.noRoomFor(upload.key, reason)) ?? reason;
      } finally {
        underWay.delete(claim);
        flow.close();
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
        await onDisk(yard.place(draft, yard.fileOf(key), key));
      }
      const crc32 = crc32Of(wanted);
      const found = await yard.describe(key);
      if (found?.bytes !== bytes) throw lost(upload);
      // Renamed before, or never there: then another file of this length may lie at the key.
      if (!drafted && (await onDisk(measure(createReadStream(yard.fileOf(key)), signal))).crc32 !== crc32) {
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

function isWhole(line: string): boolean {
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}
