import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { answer } from './bare.ts';
import { bytes, bytesOf, cutAt, never, newDownloadGround, rest } from './download-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newDownloadGround();
const { admin, bare, downloader, newFile, bareLink } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('an expired link', () => {
  it('an expired link is renewed once', async () => {
    const { link } = await newFile();
    await admin.advanceClock(901);
    expect((await bytesOf(await downloader().open(link, never))).equals(bytes)).toBe(true);
    expect(link.renewed).toBe(1);
  });

  it('an expired link is renewed whatever 4xx it is refused with', async () => {
    for (const status of [400, 401, 403, 409, 451]) {
      bare.answer(answer(status, 'expired'), answer(200, 'x'));
      expect(String(await bytesOf(await downloader().open(bareLink(), never)))).toBe('x');
    }
  });

  it('an expired link is an error if the renewed link is refused too', async () => {
    const { link } = await newFile();
    await admin.setFaults({ endpoint: 'media', expireLinks: true });
    expect(await failureOf(downloader().open(link, never))).toMatchObject({ status: 403 });
    expect(link.renewed).toBe(1);
  });

  it('a link that expires during a download is renewed, and the download continues', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', cutAfter: 1_000_000, times: 1 });
    const { body } = await downloader().open(link, never);
    const chunks: Buffer[] = [];
    for await (const chunk of body) {
      if (chunks.length === 0) await admin.advanceClock(901);
      chunks.push(chunk);
    }
    expect(Buffer.concat(chunks).equals(bytes)).toBe(true);
    expect(link.renewed).toBe(1);
    expect((await requests()).map(({ status, range }) => [status, range])).toEqual([
      [200, null],
      [403, 'bytes=1000000-'],
      [206, 'bytes=1000000-'],
    ]);
  });

  it('a link that answers 404 during a download is renewed', async () => {
    bare.answer(cutAt(1000), answer(404), rest(1000));
    expect((await bytesOf(await downloader().open(bareLink(), never))).equals(bytes)).toBe(true);
  });
});
