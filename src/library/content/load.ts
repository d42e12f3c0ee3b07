import type { Store } from '../database/store.ts';
import { type Content, type ContentOption, contentOfAda, type Delays } from './content.ts';
import { Folder } from './folder/folder.ts';
import { samples } from './samples.ts';
import { Synthetic } from './synthetic.ts';

type LoadOptions = { now: () => number; delays: Delays; store: Store; log: (line: object) => void };

export async function loadContent(
  option: ContentOption | undefined,
  { now, delays, store, log }: LoadOptions,
): Promise<Content> {
  if (!option) return contentOfAda([]);
  if ('samples' in option) {
    // Stored, so that a restart does not begin transcoding again.
    const startedAt = await store.setting('samples', () => String(now()));
    return samples(option.samples, option.seed ?? 1, Number(startedAt), delays);
  }
  if ('synthetic' in option) {
    const { synthetic: count, seed = 1, ...limits } = option;
    const source = new Synthetic({ count, seed, ...limits });
    return { ...contentOfAda([source.company], [source]), bytes: source.bytes };
  }
  const folder = await Folder.open(option.media, { now, transcodeDelay: delays.transcode, store, log });
  return { ...contentOfAda([folder.company], [folder]), close: () => folder.close() };
}
