import { asked, headers, instead, json, linksForAll, MEDIA, type Mutation, status } from './faults.ts';

export const signedLinks: Mutation[] = [
  { check: 'referer-given', breaks: 'the mp4 is refused in any case', fault: status(/\/mp4$/, 200, 403) },
  {
    check: 'referer-required',
    breaks: 'thumbnails need no Referer',
    fault: (world) =>
      asked(/\/thumbnail$/, ({ headers }) => {
        headers.referer ??= world.options.app;
      })(),
  },
  {
    check: 'referer-other',
    breaks: 'any Referer is accepted',
    fault: (world) =>
      asked(MEDIA, ({ headers }) => {
        headers.referer &&= world.options.app;
      })(),
  },
  { check: 'links-signed', breaks: 'signatures are not checked', fault: linksForAll },
  { check: 'links-of-one-asset', breaks: 'signatures are good for every file', fault: linksForAll },
  {
    check: 'ranges',
    breaks: 'ranges have wrong bytes',
    fault: () => ({
      answer(answered) {
        if (answered.status === 206) answered.body = Buffer.from(answered.body.map((byte) => byte ^ 1));
      },
    }),
  },
  {
    check: 'ranges',
    breaks: 'Content-Range counts from one',
    fault: headers(MEDIA, { 'content-range': 'bytes 1-1/200000' }, { status: 206 }),
  },
  { check: 'ranges', breaks: 'a range beyond the end is 200', fault: status(MEDIA, 416, 200) },
  {
    check: 'if-range',
    breaks: 'If-Range is ignored',
    fault: asked(MEDIA, ({ headers }) => {
      headers['if-range'] = undefined;
    }),
  },
  {
    check: 'etag',
    breaks: 'a range has another ETag',
    fault: headers(MEDIA, { etag: '"other"' }, { status: 206 }),
  },
  {
    check: 'etag',
    breaks: 'If-None-Match is ignored',
    fault: asked(MEDIA, ({ headers }) => {
      headers['if-none-match'] = undefined;
    }),
  },
  {
    check: 'head',
    breaks: 'HEAD has a wrong size',
    fault: headers(MEDIA, { 'content-length': '1' }, { method: 'HEAD' }),
  },
  {
    check: 'thumbnail',
    breaks: 'a thumbnail is not a picture',
    fault: headers(MEDIA, { 'content-type': 'application/json' }),
  },
  { check: 'thumbnail-lifetime', breaks: 'thumbnail links do not expire', fault: linksForAll },
  {
    check: 'thumbnail-lifetime',
    breaks: 'thumbnail links work for a quarter of an hour',
    fault: (world) => {
      const begin = world.now();
      return instead(MEDIA, () => (world.now() - begin > 900_000 ? json(403, {}) : undefined))();
    },
  },
  { check: 'link-lifetime', breaks: 'download links do not expire', fault: linksForAll },
  {
    check: 'link-lifetime',
    breaks: 'download links work for a minute',
    fault: (world) => {
      const begin = world.now();
      return instead(MEDIA, () => (world.now() - begin > 60_000 ? json(403, {}) : undefined))();
    },
  },
];
