import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDownloader } from '../../src/source/download.ts';
import { createAgent } from '../../src/source/http.ts';
import { guardLinks } from '../../src/source/link-guard.ts';
import { newProxy } from '../support/proxy.ts';
import { answer, type Bare, startBare } from './bare.ts';

const library = { apiUrl: 'https://api.example.com/v1', appUrl: 'https://app.example.com' };

describe('a link', () => {
  const refused = (url: string, options: Partial<Parameters<typeof guardLinks>[0]> = {}) => {
    try {
      guardLinks({ ...library, allowPrivate: [], ...options }).check(new URL(url));
      return undefined;
    } catch (error) {
      return (error as Error).message;
    }
  };

  it.each([
    '169.254.169.254',
    '127.0.0.1',
    '10.1.2.3',
    '2130706433',
    '0x7f.1',
    '[::1]',
    '[::ffff:10.0.0.1]',
    '[fe80::1]',
  ])('a link to a literal address that is not public is refused: %s', (host) => {
    const address = new URL(`https://${host}`).hostname.replace(/^\[|\]$/g, '');
    expect(refused(`https://${host}/file?signature=1`)).toBe(
      `the download link leads to ${address}, which is not a public address; add ${address} to DOWNLOAD_ALLOW_PRIVATE to allow it`,
    );
    expect(refused(`https://${host}/file`, { allowPrivate: true })).toBeUndefined();
    expect(refused(`https://${host}/file`, { allowPrivate: [address] })).toBeUndefined();
    expect(refused(`https://${host}/file`, { apiUrl: `https://${host}:8443` })).toBeUndefined();
    expect(refused(`https://${host}/file`, { appUrl: `https://${host}` })).toBeUndefined();
  });

  it('a link by http is refused if the API is https, whatever the host', () => {
    const message =
      'the download link leads to api.example.com by http, while LIBRARY_API_URL is https; the library must provide https links';
    expect(refused('http://api.example.com/file?signature=1')).toBe(message);
    expect(refused('http://api.example.com/file', { allowPrivate: true })).toBe(message);
    expect(refused('http://cdn.example.com/file', { apiUrl: 'http://api.example.com' })).toBeUndefined();
  });
});

describe('a download', () => {
  let bare: Bare;
  beforeAll(async () => {
    bare = await startBare();
    bare.answer(answer(200, 'the file'));
  });
  afterAll(() => bare.close());

  const text = async (url: string, options: { allowPrivate?: string[]; proxy?: string; no?: string } = {}) => {
    const { allowPrivate = [], proxy, no = '' } = options;
    const guard = guardLinks({ ...library, apiUrl: 'http://api.example.com', allowPrivate });
    const proxies = proxy ? { http: proxy, https: proxy, no } : undefined;
    const dispatcher = createAgent({ connections: 1, proxies, lookup: guard.lookup });
    const downloader = createDownloader({ referer: library.appUrl, dispatcher, guard, stallMs: 5000 });
    try {
      const download = await downloader.open({ url, renew: async () => url }, new AbortController().signal);
      return (await download.body.toArray()).join('');
    } finally {
      await dispatcher.destroy();
    }
  };

  it('a download from a host name with a private address is refused when it connects', async () => {
    const url = bare.url.replace('127.0.0.1', 'localhost');
    await expect(text(url)).rejects.toThrow(
      /^the download link leads to localhost \((127\.0\.0\.1|::1)\), which is not a public address/,
    );
    expect(bare.requests).toEqual([]);
    expect(await text(url, { allowPrivate: ['localhost'] })).toBe('the file');
    bare.requests = [];
  });

  it('a download through a proxy is refused private literal addresses; the proxy resolves names itself', async () => {
    const proxy = await newProxy();
    try {
      await expect(text(bare.url, { proxy: proxy.url })).rejects.toThrow('127.0.0.1, which is not a public address');
      const name = bare.url.replace('127.0.0.1', 'localhost');
      await expect(text(name, { proxy: proxy.url, no: 'localhost' })).rejects.toThrow('localhost (');
      expect(proxy.asked).toEqual([]);
      expect(await text(name, { proxy: proxy.url })).toBe('the file');
    } finally {
      await proxy.close();
    }
  });
});
