import { check, NotTried, same, that } from '../check.ts';
import { type Answer, isSuccess } from '../http.ts';
import type { World } from '../world.ts';
import { aVideo, IMAGE, withLink } from './asset.ts';

async function thumbnailLink(world: World): Promise<string> {
  return (await world.asset('asset', IMAGE, () => true)).thumbnailUrl;
}

/** Every kind of signed link. */
async function links(world: World): Promise<[string, string][]> {
  const { download } = await aVideo(world);
  const all: [string, string][] = [['the original', (await withLink(world)).url]];
  if (download.mp4Url) all.push(['the mp4', download.mp4Url]);
  all.push(['the thumbnail', await thumbnailLink(world)]);
  return all;
}

function rangesOf(answer: Answer): void {
  if (answer.status === 200) throw new NotTried('this service answers a range with the whole file, as HTTP allows');
  same('the status', answer.status, 206);
}

export const signedLinks = [
  check('4.7', 'referer-given', 'Links of all kinds work with the header Referer: {app_url}.', async (world) => {
    for (const [what, url] of await links(world)) {
      same(`the status of ${what}`, (await world.download(url, { limit: 64 })).status, 200);
    }
  }),

  check('4.7', 'referer-required', 'Links of all kinds reject requests without the Referer.', async (world) => {
    for (const [what, url] of await links(world)) {
      const { status } = await world.download(url, { referer: null, limit: 64 });
      that(`${what} to be refused`, status >= 400 && status < 500, `status ${status}`);
      world.observe(`a link without Referer: status ${status}`);
    }
  }),

  check('4.7', 'referer-other', 'Links reject the Referer of another site.', async (world) => {
    const { app } = world.options;
    const { url } = await withLink(world);
    for (const referer of ['https://evil.example/', `${app}.evil.example`, `https://evil.example/?${app}`]) {
      const { status } = await world.download(url, { referer, limit: 64 });
      that(`${referer} to be refused`, status >= 400 && status < 500, `status ${status}`);
    }
  }),

  check('2.7', 'links-signed', 'A link is signed: a changed link does not work.', async (world) => {
    const { url } = await withLink(world);
    const changed = new URL(url);
    const longest = [...changed.searchParams].sort((a, b) => b[1].length - a[1].length)[0];
    if (!longest) throw new NotTried('the links of this service have no query');
    const [name, value] = longest;
    const middle = Math.floor(value.length / 2);
    changed.searchParams.set(
      name,
      value.slice(0, middle) + (value[middle] === 'A' ? 'B' : 'A') + value.slice(middle + 1),
    );
    const { status } = await world.download(changed.href, { limit: 64 });
    that('the changed link to be refused', status >= 400 && status < 500, `status ${status}`);
    for (const [other, number] of changed.searchParams) {
      if (!/^\d{9,11}$/.test(number)) continue;
      const later = new URL(url);
      later.searchParams.set(other, String(Number(number) + 3600));
      const { status } = await world.download(later.href, { limit: 64 });
      that('a link made to last longer to be refused', status >= 400 && status < 500, `status ${status}`);
    }
  }),

  check('2.7', 'links-of-one-asset', 'A link works only for the file it was made for.', async (world) => {
    const [first, second] = [await withLink(world), await aVideo(world)];
    const swapped = new URL(second.download.url);
    swapped.search = new URL(first.url).search;
    if (swapped.href === first.url || swapped.search === '')
      throw new NotTried('the links of this service have different formats');
    const { status } = await world.download(swapped.href, { limit: 64 });
    that(
      'the link of one asset with the signature of another to be refused',
      status >= 400 && status < 500,
      `status ${status}`,
    );
  }),

  check('4.7', 'ranges', 'A range request returns those bytes (RFC 9110).', async (world) => {
    const { url, size } = await withLink(world);
    const { bytes } = await world.download(url, { limit: size });
    for (const [range, start, end] of [
      ['bytes=0-0', 0, 1],
      ['bytes=100-1099', 100, 1100],
      [`bytes=${size - 500}-`, size - 500, size],
      ['bytes=-300', size - 300, size],
      [`bytes=1000-${size + 1000}`, 1000, size],
    ] as const) {
      const answer = await world.download(url, { headers: { range }, limit: size });
      rangesOf(answer);
      same(`Content-Range of ${range}`, answer.header('content-range'), `bytes ${start}-${end - 1}/${size}`);
      that(`the bytes of ${range}`, answer.bytes.equals(bytes.subarray(start, end)), `${answer.bytes.length} others`);
    }
    const beyond = await world.download(url, { headers: { range: `bytes=${size}-` } });
    same('the status of a range beyond the end', beyond.status, 416);
  }),

  check(
    '4.7',
    'if-range',
    'If-Range with the ETag gives the range, with another the whole file (RFC 9110).',
    async (world) => {
      const { url, size } = await withLink(world);
      const range = 'bytes=10-19';
      const plain = await world.download(url, { headers: { range } });
      rangesOf(plain);
      const etag = plain.header('etag');
      if (!etag || etag.startsWith('W/')) throw new NotTried('the files of this service have no strong ETag');
      const kept = await world.download(url, { headers: { range, 'if-range': etag } });
      same('the status with the ETag', [kept.status, kept.bytes.length], [206, 10]);
      const other = await world.download(url, { headers: { range, 'if-range': '"another"' }, limit: size + 1 });
      same('the status and size with another', [other.status, other.bytes.length], [200, size]);
    },
  ),

  check(
    '4.7',
    'etag',
    'The whole, a range and HEAD have the same ETag, and a known one is 304 (RFC 9110).',
    async (world) => {
      const { url } = await withLink(world);
      const etag = (await world.download(url, { limit: 64 })).header('etag');
      if (!etag) throw new NotTried('the files of this service have no ETag');
      const ranged = await world.download(url, { headers: { range: 'bytes=0-9' } });
      same('the ETag of a range', ranged.header('etag'), etag);
      const known = await world.download(url, { headers: { 'if-none-match': etag }, limit: 64 });
      same('the status of a known ETag', known.status, 304);
    },
  ),

  check('4.7', 'head', 'HEAD returns size and type, without a body (RFC 9110).', async (world) => {
    const { url, size } = await withLink(world);
    const answer = await world.download(url, { method: 'HEAD' });
    if (!isSuccess(answer)) throw new NotTried(`this service answers HEAD with ${answer.status}`);
    same('the body', answer.bytes.length, 0);
    same('Content-Length', answer.header('content-length'), String(size));
  }),

  check('2.6', 'thumbnail', 'thumbnailUrl is a picture.', async (world) => {
    const answer = await world.download(await thumbnailLink(world), { limit: 64 });
    same('the status', answer.status, 200);
    that('a picture', /^image\//.test(answer.header('content-type') ?? ''), answer.header('content-type'));
  }),

  check('2.6', 'thumbnail-lifetime', 'A thumbnail link works for about an hour.', async (world) => {
    world.canPassTime(70 * 60);
    const link = await thumbnailLink(world);
    await world.passTime(50 * 60);
    same('the status after 50 minutes', (await world.download(link, { limit: 64 })).status, 200);
    await world.passTime(20 * 60);
    const { status } = await world.download(link, { limit: 64 });
    that('a refusal after 70 minutes', status >= 400 && status < 500, `status ${status}`);
  }),

  check('2.7', 'link-lifetime', 'A download link works until expiresAt, and not afterwards.', async (world) => {
    const { id, download } = await aVideo(world);
    const left = download.expiresAt - world.now() / 1000;
    world.canPassTime(left);
    await world.passTime(Math.max(0, left - 15));
    const url = download.mp4Url ?? download.url;
    same('the status shortly before', (await world.download(url, { limit: 64 })).status, 200);
    await world.passTime(20);
    const { status } = await world.download(url, { limit: 64 });
    that('a refusal shortly after', status >= 400 && status < 500, `status ${status}`);
    const fresh = (await world.detail(id)).download;
    same('the status of a fresh link', (await world.download(fresh.mp4Url ?? fresh.url, { limit: 64 })).status, 200);
  }),
];
