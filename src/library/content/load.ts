import { type Store, settingOf } from '../database/store.ts';
import { type Content, type ContentOption, contentOfAda, type Delays } from './content.ts';
import { openFolder } from './folder.ts';
import { samples } from './samples.ts';
import { synthetic } from './synthetic.ts';

type LoadOptions = { now: () => number; delays: Delays; store: Store; log: (line: object) => void };

export async function loadContent(
  option: ContentOption | undefined,
  { now, delays, store, log }: LoadOptions,
): Promise<Content> {
  if (!option) return contentOfAda([]);
  if ('samples' in option) {
    // What became ready once does not go back to processing with the next start.
    const startedAt = await settingOf(store, 'samples', () => String(now()));
    return samples(option.samples, option.seed ?? 1, Number(startedAt), delays);
  }
  if ('synthetic' in option) {
    const { synthetic: count, seed = 1, sizes } = option;
    const { company, source } = synthetic({ count, seed, ...(sizes && { sizes }) });
    return contentOfAda([company], [source]);
  }
  const folder = { now, transcodeDelay: delays.transcode, store, log };
  const { company, source, close } = await openFolder(option.media, folder);
  return { ...contentOfAda([company], [source]), close };
}
