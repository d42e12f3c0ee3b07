import { DETAIL, download, listed, MEDIA, type Mutation, one, status } from './faults.ts';

export const asset: Mutation[] = [
  {
    check: 'detail',
    breaks: 'an asset has another name than in the list',
    fault: one(({ name }) => ({ name: `${name}!` })),
  },
  { check: 'detail', breaks: 'one asset has no tags', fault: one(() => ({ tags: undefined })) },
  {
    check: 'download-in-detail-only',
    breaks: 'listed assets have a download',
    fault: listed(() => ({ download: {} })),
  },
  {
    check: 'mp4-of-videos',
    breaks: 'a video has no mp4Url',
    fault: download(() => ({ mp4Url: null })),
  },
  {
    check: 'mp4-null',
    breaks: 'every asset has an mp4Url',
    fault: download(({ url }) => ({ mp4Url: url })),
  },
  {
    check: 'expires-at',
    breaks: 'expiresAt is in milliseconds',
    fault: download(({ expiresAt }) => ({ expiresAt: expiresAt * 1000 })),
  },
  {
    check: 'expires-at',
    breaks: 'expiresAt has passed',
    fault: download(({ expiresAt }) => ({ expiresAt: expiresAt - 86_400 })),
  },
  {
    check: 'facts',
    breaks: 'durations are whole seconds',
    fault: one(({ duration }) => ({ duration: Math.round(duration) })),
  },
  {
    check: 'unknown-asset',
    breaks: 'an unknown asset gets an empty answer',
    fault: status(DETAIL, 404, 200, { asset: {} }),
  },
  { check: 'ready', breaks: 'a ready asset cannot be downloaded', fault: status(MEDIA, 200, 403) },
  {
    check: 'processing-to-ready',
    breaks: 'an asset is ready from the start',
    fault: one(() => ({ status: 'ready' })),
  },
  {
    check: 'processing-to-ready',
    breaks: 'an asset never becomes ready',
    fault: one(() => ({ status: 'processing' })),
  },
  {
    check: 'unavailable',
    breaks: 'an unavailable asset has a file',
    fault: status(MEDIA, 404, 200),
  },
  { check: 'original-gone', breaks: 'a lost original is 410', fault: status(MEDIA, 404, 410) },
  {
    check: 'original-gone',
    breaks: 'the mp4Url is lost with the original',
    fault: status(/\/mp4$/, 200, 404),
  },
  {
    check: 'original-bytes',
    breaks: 'the file is one byte too short',
    fault: () => ({
      answer(answered, { path }) {
        if (MEDIA.test(path)) answered.body = answered.body.subarray(0, -1);
      },
    }),
  },
  {
    check: 'filename',
    breaks: 'filename is empty',
    fault: download(() => ({ filename: '' })),
  },
];
