import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  type Admin,
  connect,
  type DetailedAsset,
  type Library,
  type ListedAsset,
  startTestLibrary,
} from '../support/library.ts';

let library: Library;
let admin: Admin;
let token: string;
let companyId: string;

beforeAll(async () => {
  ({ library, admin } = await startTestLibrary());
  companyId = (await admin.addCompany({ name: 'First', userIds: ['usr_ada'] })).id;
  token = (await connect(library)).access_token;
});
afterAll(() => library.close());

function get(path: string, authorization: string | undefined = `Bearer ${token}`): Promise<Response> {
  return fetch(`${library.apiUrl}/api/v1${path}`, { headers: authorization ? { authorization } : {} });
}

async function json<T>(path: string): Promise<T> {
  const response = await get(path);
  expect(response.status, path).toBe(200);
  return (await response.json()) as T;
}

type Page = { assets: ListedAsset[]; nextCursor?: string | null };

const document = { mimeType: 'application/pdf', assetType: 'documents' };
const video = { mimeType: 'video/mp4', assetType: 'videos' };

describe('users, companies and projects (4.4, 4.5)', () => {
  it('/me returns the user who connected and the companies the user can read', async () => {
    expect(await json('/me')).toEqual({
      user: { id: 'usr_ada', name: expect.any(String), email: 'ada@example.com' },
      companies: [{ id: companyId, name: 'First' }],
    });
  });

  it.each([
    ['no token', ''],
    ['an unknown token', 'Bearer svca_x'],
    ['another scheme', 'Basic eDp5'],
  ])('a request with %s gets 401', async (_what, authorization) => {
    const response = await fetch(`${library.apiUrl}/api/v1/me`, { headers: authorization ? { authorization } : {} });
    expect(response.status).toBe(401);
    expect(response.headers.get('www-authenticate')).toMatch(/^Bearer/);
    expect(await response.json()).toEqual({ error: 'invalid_token', message: expect.any(String) });
  });

  it('the projects of a company are listed with id, name and status', async () => {
    const project = await admin.addProject({ companyId, name: 'Übersicht' });
    expect(await json(`/companies/${companyId}/projects`)).toEqual({
      projects: [{ id: project.id, name: 'Übersicht', status: 'active' }],
    });
  });

  it('a company or asset that the user cannot read answers 404', async () => {
    const other = await admin.addCompany({ name: 'Other' });
    const asset = await admin.addAsset({ companyId: other.id, name: 'secret.pdf', ...document });
    for (const path of [`/companies/${other.id}/assets`, `/companies/${other.id}/projects`, `/assets/${asset.id}`]) {
      expect((await get(path)).status, path).toBe(404);
    }
  });
});

describe('the list of assets (4.6)', () => {
  let company: string;

  beforeEach(async () => {
    company = (await admin.addCompany({ name: 'Listed', userIds: ['usr_ada'] })).id;
  });

  async function upload(...dates: number[]): Promise<string[]> {
    const ids = [];
    for (const uploadDate of dates) {
      ids.push((await admin.addAsset({ companyId: company, name: `${uploadDate}.pdf`, uploadDate, ...document })).id);
    }
    return ids;
  }

  async function pageOf(query: string): Promise<{ dates: number[]; nextCursor: string | null | undefined }> {
    const { assets, nextCursor } = await json<Page>(`/companies/${company}/assets?${query}`);
    return { dates: assets.map(({ uploadDate }) => uploadDate), nextCursor };
  }

  it('assets are listed newest first, in pages, and the last cursor is null', async () => {
    await upload(2000, 5000, 1000, 4000, 3000);
    const first = await pageOf('limit=2');
    const second = await pageOf(`limit=2&cursor=${first.nextCursor}`);
    const third = await pageOf(`limit=2&cursor=${second.nextCursor}`);
    expect([first, second, third].map(({ dates }) => dates)).toEqual([[5000, 4000], [3000, 2000], [1000]]);
    expect(third.nextCursor).toBeNull();
  });

  it('uploads during a listing neither skip nor repeat an asset, even in the same millisecond', async () => {
    await upload(1000, 1000, 1000, 1000, 1000);
    const seen: string[] = [];
    let cursor: string | null | undefined;
    do {
      const { assets, nextCursor }: Page = await json(
        `/companies/${company}/assets?limit=1${cursor ? `&cursor=${cursor}` : ''}`,
      );
      seen.push(...assets.map(({ id }) => id));
      cursor = nextCursor;
      await upload(2000);
    } while (cursor);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toHaveLength(5);
  });

  it('a page has 50 assets by default, and 1 to 100 on request', async () => {
    await upload(...Array.from({ length: 101 }, (_, i) => i + 1));
    expect((await pageOf('')).dates).toHaveLength(50);
    expect((await pageOf('limit=100')).dates).toHaveLength(100);
  });

  it('`since` lists only assets that were uploaded strictly later', async () => {
    await upload(1000, 2000, 3000);
    expect((await pageOf('since=2000')).dates).toEqual([3000]);
  });

  it('assets are filtered by type or by project', async () => {
    const project = await admin.addProject({ companyId: company, name: 'P' });
    await upload(1000);
    await admin.addAsset({ companyId: company, name: 'v', uploadDate: 2000, ...video });
    await admin.addAsset({ companyId: company, name: 'p', uploadDate: 3000, projectId: project.id, ...document });
    expect((await pageOf('assetType=videos')).dates).toEqual([2000]);
    expect((await pageOf(`projectId=${project.id}`)).dates).toEqual([3000]);
    expect((await pageOf('assetType=brand%20assets')).dates).toEqual([]);
  });

  it.each([
    'limit=0',
    'limit=101',
    'limit=ten',
    'since=yesterday',
    'cursor=nonsense',
    'assetType=pictures',
    'assetType=videos&projectId=p',
    'limit=1&limit=2',
  ])('a list request with %s gets 400', async (query) => {
    const response = await get(`/companies/${company}/assets?${query}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toEqual({ error: 'invalid_request', message: expect.any(String) });
  });
});

describe('one asset (4.7)', () => {
  it('an asset has every field of the specification, and its download', async () => {
    const project = await admin.addProject({ companyId, name: 'Spring' });
    const { id } = await admin.addAsset({
      companyId,
      projectId: project.id,
      name: 'Sommer 🌞.mp4',
      ...video,
      content: { seed: 1, size: 5000 },
      uploadDate: 1_700_000_000_000,
      tags: ['a', 'b'],
      duration: 2.5,
      width: 320,
      height: 180,
    });
    const { asset } = await json<{ asset: DetailedAsset }>(`/assets/${id}`);
    const url = expect.stringMatching(new RegExp(`^${library.apiUrl}/media/${id}/`));
    expect(asset).toEqual({
      id,
      name: 'Sommer 🌞.mp4',
      mimeType: 'video/mp4',
      assetType: 'videos',
      size: 5000,
      duration: 2.5,
      width: 320,
      height: 180,
      projectId: project.id,
      projectName: 'Spring',
      tags: ['a', 'b'],
      uploadDate: 1_700_000_000_000,
      status: 'ready',
      hasTranscript: false,
      thumbnailUrl: url,
      download: { url, mp4Url: url, filename: 'Sommer 🌞.mp4', expiresAt: expect.any(Number) },
    });
    const { assets } = await json<Page>(`/companies/${companyId}/assets?projectId=${project.id}`);
    const { download: _, ...listed } = asset;
    // Each answer has a link of its own, which expires a second later if the clock moved on.
    expect(assets).toEqual([{ ...listed, thumbnailUrl: url }]);
  });

  it('only videos have an mp4Url', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.pdf', ...document, mp4: { text: 'odd' } });
    expect((await json<{ asset: DetailedAsset }>(`/assets/${id}`)).asset.download.mp4Url).toBeNull();
  });

  it('an uploaded asset with status processing stays so until it is changed', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.mp4', ...video, status: 'processing' });
    expect((await json<{ asset: DetailedAsset }>(`/assets/${id}`)).asset).toMatchObject({
      status: 'processing',
      download: { mp4Url: null },
    });
    await admin.changeAsset(id, { status: 'ready' });
    expect((await json<{ asset: DetailedAsset }>(`/assets/${id}`)).asset).toMatchObject({
      status: 'ready',
      download: { mp4Url: expect.any(String) },
    });
  });

  it('the admin API overrides and omits fields of an asset', async () => {
    const { id } = await admin.addAsset({
      companyId,
      name: 'x.pdf',
      ...document,
      override: { size: 'large', news: true },
      overrideDetail: { asset: { download: { filename: '../../etc/passwd' } } },
      omit: ['tags', 'download.expiresAt'],
    });
    const { asset } = await json<{ asset: DetailedAsset }>(`/assets/${id}`);
    expect(asset).toMatchObject({ size: 'large', news: true, download: { filename: '../../etc/passwd' } });
    expect(asset).not.toHaveProperty('tags');
    expect(asset.download).not.toHaveProperty('expiresAt');
  });

  it('a deleted asset answers 404 and is not listed', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.pdf', ...document });
    await admin.removeAsset(id);
    expect((await get(`/assets/${id}`)).status).toBe(404);
  });
});

describe('transcripts (4.8)', () => {
  const transcript = {
    language: 'de',
    durationSec: 2,
    text: 'Schön.\n',
    vtt: 'WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nSchön.\n',
    words: [{ word: 'Schön.', start: 0.1, end: 1.9 }],
  };

  it('a transcript is served as captions, text and JSON', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.mp4', ...video, transcript });
    for (const [query, type, body] of [
      ['', 'text/vtt', transcript.vtt],
      ['?format=vtt', 'text/vtt', transcript.vtt],
      ['?format=txt', 'text/plain', transcript.text],
    ] as const) {
      const response = await get(`/assets/${id}/transcript${query}`);
      expect(response.headers.get('content-type')).toMatch(type);
      expect(await response.text()).toBe(body);
    }
    expect(await json(`/assets/${id}/transcript?format=json`)).toEqual({ assetId: id, ...transcript });
    expect((await get(`/assets/${id}/transcript?format=srt`)).status).toBe(400);
  });

  it('a transcript answers 404 until it exists, and hasTranscript changes with it', async () => {
    const { id, hasTranscript } = await admin.addAsset({
      companyId,
      name: 'x.mp3',
      mimeType: 'audio/mpeg',
      assetType: 'audio',
    });
    expect(hasTranscript).toBe(false);
    expect((await get(`/assets/${id}/transcript`)).status).toBe(404);
    expect((await admin.changeAsset(id, { transcript: { ...transcript, words: null } })).hasTranscript).toBe(true);
    expect(await json(`/assets/${id}/transcript?format=json`)).toMatchObject({ words: null });
  });

  it.each(['vtt', 'txt', 'json'])('a transcript without speech answers noSpeech in the format %s', async (format) => {
    const { id } = await admin.addAsset({ companyId, name: 'x.mp4', ...video, transcript: { noSpeech: true } });
    expect(await json(`/assets/${id}/transcript?format=${format}`)).toEqual({ assetId: id, noSpeech: true });
  });

  it('the transcript of an asset with hasTranscript false answers 404', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.mp4', ...video, transcript, hasTranscript: false });
    expect((await get(`/assets/${id}/transcript`)).status).toBe(404);
    await admin.changeAsset(id, { hasTranscript: true });
    expect((await get(`/assets/${id}/transcript`)).status).toBe(200);
  });

  it('only videos and audio files have a transcript', async () => {
    const { id } = await admin.addAsset({ companyId, name: 'x.pdf', ...document, transcript, hasTranscript: true });
    expect((await get(`/assets/${id}/transcript`)).status).toBe(404);
  });
});

describe('states after an upload (3.1)', () => {
  it('an uploaded video becomes ready, and later has a transcript', async () => {
    const slow = await startTestLibrary({ transcodeDelay: 60_000, transcriptDelay: 300_000 });
    try {
      const company = await slow.admin.addCompany({ name: 'Slow', userIds: ['usr_ada'] });
      const { access_token } = await connect(slow.library);
      const { id } = await slow.admin.addAsset({
        companyId: company.id,
        name: 'x',
        ...video,
        transcript: { noSpeech: true },
      });
      const state = async () => {
        const headers = { authorization: `Bearer ${access_token}` };
        const answer = await fetch(`${slow.library.apiUrl}/api/v1/assets/${id}`, { headers });
        const { status, hasTranscript } = ((await answer.json()) as { asset: ListedAsset }).asset;
        return { status, hasTranscript };
      };
      expect(await state()).toEqual({ status: 'processing', hasTranscript: false });
      await slow.admin.advanceClock(61);
      expect(await state()).toEqual({ status: 'ready', hasTranscript: false });
      await slow.admin.advanceClock(300);
      expect(await state()).toEqual({ status: 'ready', hasTranscript: true });
    } finally {
      await slow.library.close();
    }
  });
});
