import { check, Failure, same, that } from '../check.ts';
import { describeAnswer, isRefusal } from '../http.ts';
import { segment } from '../reading.ts';
import type { Asset } from '../shapes.ts';
import type { World } from '../world.ts';

export const VIDEO = { name: 'clip.mp4', mimeType: 'video/mp4', assetType: 'videos' };
export const IMAGE = { name: 'photo.jpg', mimeType: 'image/jpeg', assetType: 'photography' };
export const SOUND = { name: 'talk.mp3', mimeType: 'audio/mpeg', assetType: 'audio' };

const isVideo = ({ mimeType }: Asset) => mimeType.startsWith('video/');
export const isTimed = ({ mimeType }: Asset) => /^(video|audio)\//.test(mimeType);
const isReady = ({ status }: Asset) => status === 'ready';

export const aVideo = async (world: World) =>
  world.detail(
    (await world.asset('ready video', { ...VIDEO, status: 'ready' }, (it) => isVideo(it) && isReady(it))).id,
  );

const aPicture = async (world: World) =>
  world.detail((await world.asset('ready image', IMAGE, (it) => it.mimeType.startsWith('image/') && isReady(it))).id);

export const asset = [
  check('4.7', 'detail', 'An asset has the fields of the list, and download.', async (world) => {
    const company = await world.listed();
    const { assets } = await world.page(company.id, { limit: 5 });
    for (const listed of assets) {
      const { download: _, thumbnailUrl: _thumbnail, ...detail } = await world.detail(listed.id);
      const { thumbnailUrl, ...fields } = listed;
      same(`the fields of ${listed.id}`, detail, fields);
    }
  }),

  check('2.7', 'download-in-detail-only', 'Listed assets have no download.', async (world) => {
    const company = await world.listed();
    const { assets } = await world.page(company.id);
    const odd = assets.find((listed) => 'download' in listed);
    if (odd) throw new Failure('no field download', Object.keys(odd));
  }),

  check('2.7', 'mp4-of-videos', 'mp4Url is a link for a ready video.', async (world) => {
    const { download } = await aVideo(world);
    that('a link in mp4Url', typeof download.mp4Url === 'string', download.mp4Url);
  }),

  check('2.7', 'mp4-null', 'mp4Url is null for any asset that is not a video.', async (world) => {
    const picture = await aPicture(world);
    same('mp4Url of an image', picture.download.mp4Url, null);
    const other = await world.asset(
      'asset that is no video or image',
      SOUND,
      (it) => !/^(video|image)/.test(it.mimeType),
    );
    same(`mp4Url of ${other.mimeType}`, (await world.detail(other.id)).download.mp4Url, null);
  }),

  check('2.7', 'expires-at', 'expiresAt is in epoch seconds, and in the future.', async (world) => {
    const { download } = await aPicture(world);
    const ahead = download.expiresAt - world.now() / 1000;
    that('a time in the next days', ahead > 0 && ahead < 30 * 86_400, download.expiresAt);
    world.observe(`a download link works for ${Math.round(ahead / 60)} min`);
  }),

  check('2.6', 'facts', 'Size, duration, width, height and tags are correct.', async (world) => {
    const own = world.needOwn();
    const facts = { duration: 12.345, width: 1920, height: 1080, tags: ['tag', 'ünicode'] };
    const content = { text: 'twelve bytes' };
    const id = await world.upload({ ...VIDEO, status: 'ready', ...facts, content });
    const found = await world.detail(id);
    same('size', found.size, 12);
    for (const [name, value] of Object.entries(facts)) same(name, found[name], value);
    same('name', found.name, VIDEO.name);
    const listed = (await world.list(own.companyId, {}, Infinity)).find((it) => it.id === id);
    same('duration in the list', listed?.duration, facts.duration);
  }),

  check(
    '4.7',
    'unknown-asset',
    'An asset that does not exist, or that the user cannot read, is not given.',
    async (world) => {
      const unknown = ['ast_unknown'];
      if (world.admin) unknown.push(await world.upload(IMAGE, (await world.newPerson()).companyId));
      for (const id of unknown) {
        for (const path of [`/assets/${id}`, `/assets/${id}/transcript`]) {
          const answer = await world.get(path);
          that('a refusal', isRefusal(answer), describeAnswer(answer));
          world.observe(`an unknown asset: status ${answer.status}`);
        }
      }
    },
  ),

  check('3.1', 'ready', 'A ready asset can be downloaded.', async (world) => {
    const { id } = await world.asset('ready asset', IMAGE, isReady);
    const { download, status } = await world.detail(id);
    same('the status', status, 'ready');
    const answer = await world.download(download.url, { limit: 1024 });
    const fallback =
      answer.status === 404 && download.mp4Url ? await world.download(download.mp4Url, { limit: 1024 }) : answer;
    same('the status of its download', fallback.status, 200);
  }),

  check(
    '3.1',
    'processing-to-ready',
    'A video is processing while it transcodes, and ready when that is done.',
    async (world) => {
      const admin = world.needAdmin('only an upload is processing; --admin uploads');
      const id = await world.upload({ ...VIDEO, status: 'processing' });
      same('the status at first', (await world.detail(id)).status, 'processing');
      const { companyId } = world.needOwn();
      const listed = (await world.list(companyId, {}, Infinity)).find((it) => it.id === id);
      same('the status in the list', listed?.status, 'processing');
      await admin.changeAsset(id, { status: 'ready' });
      const { status, download } = await world.detail(id);
      same('the status afterwards', status, 'ready');
      same('the status of its mp4', (await world.download(download.mp4Url ?? download.url, { limit: 64 })).status, 200);
    },
  ),

  check('3.1', 'unavailable', 'An unavailable asset has no file.', async (world) => {
    const make = { ...IMAGE, status: 'unavailable' as const };
    const { id } = await world.asset('unavailable asset', make, ({ status }) => status === 'unavailable');
    const answer = await world.get(`/assets/${segment(id)}`);
    if (answer.status !== 200) throw new Failure('status 200', describeAnswer(answer));
    const { asset } = answer.json as { asset: { status: string; download?: { url?: string | null } } };
    same('the status', asset.status, 'unavailable');
    const url = asset.download?.url;
    if (!url) {
      world.observe('download.url of an unavailable asset: none');
      return;
    }
    const { status } = await world.download(url, { limit: 64 });
    that('no file behind download.url', status >= 400 && status < 500, `status ${status}`);
    world.observe(`download.url of an unavailable asset: status ${status}`);
  }),

  check('4.7', 'original-gone', 'An original may answer 404; the mp4Url of that video works.', async (world) => {
    const make = { ...VIDEO, status: 'ready' as const, originalGone: true, mp4: { text: 'the rendition' } };
    const isGone = async (it: Asset) => {
      const { download } = await world.detail(it.id);
      return (await world.download(download.url, { limit: 64 })).status === 404;
    };
    const isCandidate = (it: Asset) => isVideo(it) && isReady(it);
    const { id } = await world.asset('video without its original', make, isCandidate, isGone);
    const { download } = await world.detail(id);
    same('the status of download.url', (await world.download(download.url)).status, 404);
    if (!download.mp4Url) throw new Failure('a link in mp4Url', download.mp4Url);
    const answer = await world.download(download.mp4Url);
    same('the status of mp4Url', answer.status, 200);
    if (world.own) same('the rendition', answer.text, 'the rendition');
  }),

  check(
    '2.7',
    'original-bytes',
    'download.url is the original upload, byte for byte, and size is its size.',
    async (world) => {
      const text = `the original, ${'x'.repeat(5000)}`;
      const make = { ...IMAGE, content: { text } };
      const isSmall = (it: Asset) => isReady(it) && !isVideo(it) && it.size > 0 && it.size < 8e6;
      const { id } = await world.asset('ready file under 8 MB', make, isSmall);
      const { download, size } = await world.detail(id);
      const answer = await world.download(download.url, { limit: 8e6 });
      same('the status', answer.status, 200);
      same('the bytes', answer.bytes.length, size);
      if (world.own) that('the bytes that were uploaded', answer.text === text, answer.text.slice(0, 50));
    },
  ),

  check(
    '2.7',
    'filename',
    'filename is a name for the file, also where the name of the asset is another.',
    async (world) => {
      const { download } = await aPicture(world);
      that('a name', download.filename.trim() !== '', download.filename);
      if (/[/\\]/.test(download.filename)) world.observe('filename can hold slashes');
    },
  ),
];

export async function withLink(world: World): Promise<{ url: string; size: number }> {
  const make = { ...IMAGE, content: { seed: 'ranges', size: 200_000 } };
  const isRight = (it: Asset) => isReady(it) && !isVideo(it) && it.size > 2000 && it.size < 8e6;
  const { id } = await world.asset('ready file of 2 KB to 8 MB', make, isRight);
  const { download, size } = await world.detail(id);
  return { url: download.url, size };
}
