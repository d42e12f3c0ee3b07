import { soundFacts } from './audio.ts';
import { imageFacts } from './images.ts';
import { matroskaFacts } from './matroska.ts';
import { mp4Facts } from './mp4.ts';
import type { Facts, Read } from './types.ts';

const READERS: [RegExp, (read: Read, size: number, mimeType: string) => Promise<Facts>][] = [
  [/^image\//, imageFacts],
  [/^(video|audio)\/(mp4|quicktime|x-m4v|x-m4a|3gpp)$/, mp4Facts],
  [/^(video|audio)\/(webm|matroska|x-matroska)$/, matroskaFacts],
  [/^audio\//, soundFacts],
];

/** Dimensions and duration, as far as the file's format is known here and the file keeps to it. */
export async function factsOf(read: Read, size: number, mimeType: string): Promise<Facts> {
  const reader = READERS.find(([pattern]) => pattern.test(mimeType))?.[1];
  try {
    return (await reader?.(read, size, mimeType)) ?? {};
  } catch {
    // A damaged file is still an asset; there is only less to say about it.
    return {};
  }
}
