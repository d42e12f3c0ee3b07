import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { createThrottle } from '../../src/source/bandwidth.ts';
import { TooSlow } from '../../src/source/min-rate.ts';
import type { Bare } from './bare.ts';
import { broken, bytes, bytesOf, cutAt, etag, never, newDownloadGround } from './download-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newDownloadGround();
const { admin, bare, downloader, newFile, bareLink } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('the minimum rate', () => {
  const minRate = { bytesPerSecond: 8_000_000, windowMs: 50 };

  it('the minimum rate ends a download that the source sends more slowly', async () => {
    const { link, requests } = await newFile();
    await admin.setFaults({ endpoint: 'media', bytesPerSecond: 1000 });
    const { error } = await broken(await downloader({ minRate }).open(link, never));
    expect(error).toBeInstanceOf(TooSlow);
    expect(error.message).toMatch(/\/s for 50 ms, below TRANSFER_MIN_RATE \(7\.6 MiB\/s\)$/);
    expect(await requests()).toHaveLength(1);
  });

  it('the minimum rate ends a download whose many resumptions bring a few bytes each', async () => {
    const slowly: Parameters<Bare['answer']>[0] = ({ headers: { range } }, response) => {
      const start = Number(/\d+/.exec(range!)![0]);
      const headers = { etag, 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` };
      response.writeHead(206, { 'content-length': String(bytes.length - start), ...headers });
      response.write(bytes.subarray(start, start + 1), () => response.socket?.destroySoon());
    };
    bare.answer(cutAt(1), slowly);
    const least = { bytesPerSecond: 1000, windowMs: 500 };
    const { error } = await broken(await downloader({ minRate: least }).open(bareLink(), never));
    expect(error).toBeInstanceOf(TooSlow);
  });

  it('the minimum rate still applies after another part of the file was given up', async () => {
    const { link } = await newFile();
    // The first chunk alone is enough for this rate, even if it takes seconds.
    const minRate = { bytesPerSecond: 5000, windowMs: 500 };
    const { body } = await downloader({ minRate }).open(link, never);
    for await (const chunk of body) {
      // Until no more is read ahead.
      await pause(100);
      if (chunk.length > 0) break;
    }
    await admin.setFaults({ endpoint: 'media', bytesPerSecond: 1000 });
    const next = await downloader({ minRate }).open(link, never);
    const { error } = await broken(next);
    expect(error).toBeInstanceOf(TooSlow);
  });

  it('the minimum rate permits a download that is slow because of a bandwidth limit or its reader', {
    tags: 'slow',
  }, async () => {
    const content = bytes.subarray(0, 600_000);
    const { link } = await newFile(content);
    // A busy process is far faster than this rate, and the limit and the reader are slower, for longer than the window.
    const least = { bytesPerSecond: 400_000, windowMs: 1000 };
    const { take } = createThrottle(300_000);
    const limited = downloader({ minRate: least, throttle: take });
    expect((await bytesOf(await limited.open(link, never))).equals(content)).toBe(true);
    const own = { ...link, throttle: take };
    expect((await bytesOf(await downloader({ minRate: least }).open(own, never))).equals(content)).toBe(true);
    const { body } = await downloader({ minRate: least }).open(link, never);
    let read = 0;
    for await (const chunk of body) {
      read += chunk.length;
      await pause(250);
    }
    expect(read).toBe(content.length);
  });
});

describe('a stall', () => {
  it('a stall is detected before the head of the answer', async () => {
    bare.answer(() => {});
    const error = await failureOf(downloader({ stallMs: 200 }).open(bareLink(), never));
    expect(error.code).toBe('UND_ERR_HEADERS_TIMEOUT');
  });

  it('a stall is not detected while bytes come, however slowly', { tags: 'slow' }, async () => {
    const stallMs = 3000;
    bare.answer(async (_request, response) => {
      response.writeHead(200, { 'content-length': '8', etag });
      for (const byte of 'slow but') {
        response.write(byte);
        await pause(stallMs / 6);
      }
      response.end();
    });
    expect(String(await bytesOf(await downloader({ stallMs }).open(bareLink(), never)))).toBe('slow but');
    expect(bare.requests).toHaveLength(1);
  });

  it('a stall is not detected while the reader pauses', { tags: 'slow' }, async () => {
    const stallMs = 2500;
    const large = randomBytes(20_000_000);
    const { link, requests } = await newFile(large);
    const download = await downloader({ stallMs }).open(link, never);
    // Before the start, and in the middle, with more bytes in transit than all buffers hold.
    await pause(stallMs + 500);
    const chunks: Buffer[] = [];
    for await (const chunk of download.body) {
      if (chunks.length === 3) await pause(stallMs + 500);
      chunks.push(chunk);
    }
    expect(Buffer.concat(chunks).equals(large)).toBe(true);
    expect(await requests()).toHaveLength(1);
  });
});
