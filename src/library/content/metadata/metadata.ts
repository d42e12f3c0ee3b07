import { audioMetadata } from './audio.ts';
import { imageMetadata } from './images.ts';
import { matroskaMetadata } from './matroska.ts';
import { mp4Metadata } from './mp4.ts';
import type { Metadata, Read } from './types.ts';

const READERS: [RegExp, (read: Read, size: number, mimeType: string) => Promise<Metadata>][] = [
  [/^image\//, imageMetadata],
  [/^(video|audio)\/(mp4|quicktime|x-m4v|x-m4a|3gpp)$/, mp4Metadata],
  [/^(video|audio)\/(webm|matroska|x-matroska)$/, matroskaMetadata],
  [/^audio\//, audioMetadata],
];

/** Dimensions and duration of a file. Empty if the format is not supported or the file is damaged. */
export async function readMetadata(read: Read, size: number, mimeType: string): Promise<Metadata> {
  const reader = READERS.find(([pattern]) => pattern.test(mimeType))?.[1];
  try {
    return (await reader?.(read, size, mimeType)) ?? {};
  } catch {
    // A damaged file is still an asset.
    return {};
  }
}
