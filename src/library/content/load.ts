import { type Content, type ContentOption, contentOfAda, type Delays } from './content.ts';
import { openFolder } from './folder.ts';
import { samples } from './samples.ts';
import { synthetic } from './synthetic.ts';

export async function loadContent(
  option: ContentOption | undefined,
  now: () => number,
  delays: Delays,
): Promise<Content> {
  if (!option) return contentOfAda([]);
  if ('samples' in option) return samples(option.samples, option.seed ?? 1, now(), delays);
  if ('synthetic' in option) {
    const { synthetic: count, seed = 1, sizes } = option;
    const { company, source } = synthetic({ count, seed, ...(sizes && { sizes }) });
    return contentOfAda([company], [source]);
  }
  const { company, source, close } = await openFolder(option.media, now, delays.transcode);
  return { ...contentOfAda([company], [source]), close };
}
