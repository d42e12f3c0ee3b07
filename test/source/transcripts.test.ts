import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { Rejected } from '../../src/floor/errors.ts';
import { answer, raw } from './bare.ts';
import { newClientGround, signal } from './client-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newClientGround();
const { library, admin, bare, token, client, odd, newFilm } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('a transcript', () => {
  const words = [{ word: 'Hello', start: 0, end: 0.5 }];
  const spoken = { language: 'en', durationSec: 1, text: 'Hello', vtt: 'WEBVTT\n\nHello', words };
  const get = (assetId: string) => client().getTranscript({ token, signal, assetId });

  it('a transcript is fetched once, as JSON, and kept exactly as served', async () => {
    const { id } = await newFilm({ transcript: spoken });
    await admin.clearRequests();
    const found = await get(id);
    expect(found).toMatchObject({ kind: 'transcript', vtt: spoken.vtt, text: 'Hello' });
    const served = await fetch(`${library.apiUrl}/api/v1/assets/${id}/transcript?format=json`, {
      headers: { authorization: `Bearer ${token}` },
    });
    expect(found).toHaveProperty('json', await served.text());
    expect(await admin.requests({ endpoint: 'transcript' })).toHaveLength(2);
  });

  it('a transcript may be empty', async () => {
    const { id } = await newFilm({ transcript: { ...spoken, words: null } });
    expect(await get(id)).toMatchObject({ kind: 'transcript', text: 'Hello' });
  });

  it('a transcript of a video without speech is `no speech`', async () => {
    const { id } = await newFilm({ transcript: { noSpeech: true } });
    expect(await get(id)).toEqual({ kind: 'no speech' });
  });

  it('a transcript that does not exist yet is `not yet`, not an error', async () => {
    const { id } = await newFilm();
    expect(await get(id)).toEqual({ kind: 'not yet' });
  });

  it('the captions and text that a transcript lacks are requested separately', async () => {
    bare.answer(
      answer(200, { assetId: 'a', language: 'en' }),
      answer(200, 'WEBVTT\n', { 'content-type': 'text/vtt' }),
      answer(200, 'Hello', { 'content-type': 'text/plain' }),
    );
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({
      kind: 'transcript',
      json: '{"assetId":"a","language":"en"}',
      vtt: 'WEBVTT\n',
      text: 'Hello',
    });
    expect(bare.requests.map(({ path }) => path.split('=')[1])).toEqual(['json', 'vtt', 'txt']);
  });

  it('a text that begins with a brace is a text', async () => {
    bare.answer(
      answer(200, { assetId: 'a', vtt: 'WEBVTT\n' }),
      answer(200, '{applause} Hello', { 'content-type': 'text/plain' }),
    );
    const found = await odd().getTranscript({ token, signal, assetId: 'a' });
    expect(found).toMatchObject({ kind: 'transcript', text: '{applause} Hello' });
  });

  it('a transcript is refused if its captions might be truncated without notice', async () => {
    bare.answer(
      answer(200, { assetId: 'a', text: 'Hello' }),
      raw('HTTP/1.1 200 OK\r\ncontent-type: text/vtt\r\n\r\nWEBVTT\n\n00:00'),
    );
    const failure = await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }));
    expect(failure.message).toMatch(/transcript of asset a: the length of the vtt is unknown/);
  });

  it('a transcript is `no speech` if the captions are answered with noSpeech', async () => {
    bare.answer(
      answer(200, { assetId: 'a' }),
      answer(200, { assetId: 'a', noSpeech: true }, { 'content-type': 'application/json; charset=utf-8' }),
    );
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({ kind: 'no speech' });
  });

  it('a transcript is `not yet` if its captions do not exist yet', async () => {
    bare.answer(answer(200, { assetId: 'a', text: 'Hello' }), answer(404));
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toEqual({ kind: 'not yet' });
  });

  it('a transcript keeps empty captions', async () => {
    bare.answer(answer(200, { assetId: 'a', text: '', vtt: '' }));
    expect(await odd().getTranscript({ token, signal, assetId: 'a' })).toMatchObject({ vtt: '', text: '' });
    expect(bare.requests).toHaveLength(1);
  });

  it('a transcript of another asset, or with a field that breaks the schema, is refused', async () => {
    bare.answer(answer(200, { assetId: 'b', text: 'x', vtt: 'y' }));
    expect((await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }))).message).toContain(
      'for another asset',
    );
    bare.answer(answer(200, { assetId: 'a', vtt: 5 }));
    const error = await failureOf(odd().getTranscript({ token, signal, assetId: 'a' }));
    expect(error).toBeInstanceOf(Rejected);
    expect(error.message).toContain('vtt:');
  });
});
