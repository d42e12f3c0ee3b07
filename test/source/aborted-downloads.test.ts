import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { until } from '../support/until.ts';
import { answer, type Bare, hangUp } from './bare.ts';
import { broken, bytes, bytesOf, cutAt, never, newDownloadGround, rest, stallAt } from './download-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newDownloadGround();
const { bare, downloader, newFile, bareLink } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('an abort', () => {
  const reason = new Error('enough');
  const aborting = () => {
    const stop = new AbortController();
    return { signal: stop.signal, abort: () => stop.abort(reason) };
  };

  it('an abort before a download sends no request', async () => {
    bare.answer(answer(200, 'x'));
    await failureOf(downloader().open(bareLink(), AbortSignal.abort(reason)));
    expect(bare.requests).toHaveLength(0);
  });

  it('an abort ends a download that waits for its answer', async () => {
    const { signal, abort } = aborting();
    bare.answer(abort);
    expect(await failureOf(downloader().open(bareLink(), signal))).toBe(reason);
  });

  it('an abort ends a download that waits for bytes, without another request', async () => {
    const { signal, abort } = aborting();
    bare.answer(stallAt(1000));
    const download = await downloader().open(bareLink(), signal);
    const ended = broken(download);
    await until('the bytes', () => download.body.readableDidRead);
    abort();
    expect((await ended).error.cause).toBe(reason);
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(1);
  });

  it('an abort ends the tries after the connection has dropped again', async () => {
    const { signal, abort } = aborting();
    const dropAndAbort: Parameters<Bare['answer']>[0] = (request, response) => {
      hangUp(request, response);
      setImmediate(abort);
    };
    bare.answer(cutAt(1000), dropAndAbort, rest(1000));
    await broken(await downloader().open(bareLink(), signal));
    expect(bare.requests).toHaveLength(2);
  });

  it('an abort ends a download that waits for its continuation', async () => {
    const { signal, abort } = aborting();
    bare.answer(cutAt(1000), abort);
    const { error } = await broken(await downloader().open(bareLink(), signal));
    expect(error).toBe(reason);
  });

  it('an abort before the body is read frees the connection, and reading then fails', async () => {
    const { signal, abort } = aborting();
    bare.answer(stallAt(1000));
    const download = await downloader().open(bareLink(), signal);
    abort();
    await until('the line to be free', () => bare.sockets === 0);
    const { arrived } = await broken(download);
    expect(arrived.length).toBeLessThan(bytes.length);
    expect(bare.requests).toHaveLength(1);
  });
});

describe('a destroyed body', () => {
  it('a body that is destroyed before it is read frees its socket', async () => {
    const { link } = await newFile();
    const one = downloader();
    for (let i = 0; i < 5; i++) (await one.open(link, never)).body.destroy();
    expect((await bytesOf(await one.open(link, never))).equals(bytes)).toBe(true);
  });

  it('a body that is destroyed in the middle of the file frees its socket', async () => {
    const { link, requests } = await newFile();
    const one = downloader();
    for (let i = 0; i < 5; i++) for await (const _ of (await one.open(link, never)).body) break;
    expect((await bytesOf(await one.open(link, never))).equals(bytes)).toBe(true);
    expect(await requests()).toHaveLength(6);
  });

  it('a body that is destroyed while it waits for bytes frees its socket at once, without another request', async () => {
    bare.answer(stallAt(1000));
    const { body } = await downloader({ stallMs: 600_000 }).open(bareLink(), never);
    body.resume();
    body.on('error', () => {});
    await until('the bytes', () => body.readableDidRead);
    body.destroy();
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(1);
  });

  it('a body that is destroyed while it waits for a continuation frees its socket', async () => {
    const second = Promise.withResolvers<void>();
    bare.answer(cutAt(1000), () => second.resolve());
    const { body } = await downloader({ stallMs: 600_000 }).open(bareLink(), never);
    body.resume();
    body.on('error', () => {});
    await second.promise;
    body.destroy();
    await until('the line to be free', () => bare.sockets === 0);
    expect(bare.requests).toHaveLength(2);
  });

  it('a body that is destroyed has the error that it was destroyed with', async () => {
    bare.answer(stallAt(1000));
    const { body } = await downloader().open(bareLink(), never);
    const closed = Promise.withResolvers<Error>();
    body.on('error', closed.resolve);
    body.destroy(new Error('the bucket is full'));
    expect((await closed.promise).message).toBe('the bucket is full');
  });

  it('unused answers free their sockets, even if they never end', { tags: 'slow' }, async () => {
    const endless =
      (status: number, headers: Record<string, string> = {}): Parameters<Bare['answer']>[0] =>
      (_request, response) => {
        response.writeHead(status, { 'content-length': '500', ...headers }).write('x');
      };
    bare.answer(endless(302, { location: '/there' }), endless(403), answer(200, 'x'));
    const one = downloader({ stallMs: 1000 });
    expect(String(await bytesOf(await one.open(bareLink(), never)))).toBe('x');
    for (const status of [404, 500, 429, 206]) {
      bare.answer(endless(status));
      await failureOf(one.open(bareLink(), never));
    }
    bare.answer(cutAt(1000), endless(416), rest(1000));
    expect((await bytesOf(await one.open(bareLink(), never))).equals(bytes)).toBe(true);
  });
});
