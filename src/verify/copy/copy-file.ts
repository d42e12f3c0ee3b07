import { crc32At, metered } from '../../storage/meter.ts';
import type { Storage } from '../../storage/storage.ts';
import { readOne } from '../../storage/throw-if-unavailable.ts';

/** An object of the mirror, and its key at the target. After a rebuild, length and checksum may be unknown. */
export interface FileToCopy {
  at: string;
  versionId?: string | undefined;
  bytes?: number | undefined;
  crc32?: string | null | undefined;
  to: string;
  contentType?: string | undefined;
}

/**
 * Copies an object, verified by length and checksum. The same file at the target stays: then `written` is false.
 * @throws Error if the object is missing or damaged, or if another file is at the target and `overwrite` is not set
 */
export async function copyFile(
  { storage, target }: { storage: Storage; target: Storage },
  file: FileToCopy,
  { overwrite, signal }: { overwrite: boolean; signal: AbortSignal },
): Promise<{ written: boolean; bytes: number; crc32: string | null }> {
  const { to, contentType } = file;
  const { bytes, crc32 } = await readOne(storage, () => described(storage, file, signal));
  const there = await target.head(to, { signal });
  if (there) {
    const isSame = there.bytes === bytes && (await crc32At(target, to, { signal })) === crc32;
    if (isSame) return { written: false, bytes, crc32 };
    if (!overwrite) throw new Error(`${to} is there with other content; --overwrite replaces it`);
  }
  const body = await readOne(storage, () => verifiedBody(storage, { ...file, bytes, crc32 }, signal));
  await target.put(to, body, { bytes, contentType, signal });
  return { written: true, bytes, crc32 };
}

/** Length and checksum of the object. @throws Error if it is missing or has another length */
export async function described(
  storage: Storage,
  { at, versionId, bytes: stored, crc32: known }: Omit<FileToCopy, 'to'>,
  signal: AbortSignal,
): Promise<{ bytes: number; crc32: string | null }> {
  const source = await storage.head(at, { signal, versionId });
  if (!source) throw new Error(`${at} is missing in the bucket`);
  const { bytes } = source;
  if (stored !== undefined && bytes !== stored) throw new Error(`${at} has ${bytes} bytes, but ${stored} were stored`);
  return { bytes, crc32: known ?? (await crc32At(storage, at, { signal, versionId })) };
}

/** The bytes of an object. If length or checksum is wrong, the stream fails before the last bytes. */
export async function verifiedBody(
  storage: Storage,
  { at, versionId, bytes, crc32 }: Omit<FileToCopy, 'to'>,
  signal: AbortSignal,
) {
  const body = await storage.get(at, { signal, versionId });
  if (!body) throw new Error(`${at} is missing in the bucket`);
  const meter = metered(body, {
    expected: bytes,
    signal,
    async fence() {
      const { crc32: found } = meter.checksums();
      if (found !== crc32) throw new Error(`${at} is damaged: it has CRC-32 ${found}, but ${crc32} was stored`);
    },
  });
  return meter;
}
