import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readCopyConfig } from '../../src/config/config.ts';
import { rebuildFrom } from '../../src/offline/rebuild.ts';
import { silent } from '../store/records.ts';
import { ask, newDatabase } from '../support/database.ts';
import { databaseAsText } from '../support/everything.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { spawned } from '../support/spawned.ts';
import { until } from '../support/until.ts';

interface Found {
  id: string;
  said: { startMs: number; text: string; marks: [number, number][] }[];
}

/** Cues of four seconds each. */
const vttOf = (...cues: string[]) =>
  `WEBVTT\n\n${cues.map((text, i) => `00:00:${String(i * 4).padStart(2, '0')}.000 --> 00:00:${String(i * 4 + 4).padStart(2, '0')}.000\n${text}\n`).join('\n')}`;
const transcriptOf = (vtt: string, language = 'en') => ({ language, durationSec: 3, text: 'text', vtt, words: null });
const talk = vttOf(
  'Good morning, and thank you all for coming.',
  'Today we are talking about the quarterly',
  'budget of the marketing department, 50 % of it.',
  'Nobody was running away, they were only <i>walking</i>.',
);

let scene: Scene;
let rebuilt: Awaited<ReturnType<typeof newDatabase>> | undefined;
beforeAll(async () => {
  scene = await newScene({ environment: { SEARCH_TRANSCRIPTS: 'true' } });
});
afterAll(async () => {
  await scene?.close();
  await rebuilt?.drop();
});

const search = async (said: string, more = ''): Promise<Found[]> =>
  (await scene.mirror.api('GET', `/assets?said=${encodeURIComponent(said)}${more}`)).assets;
const idsOf = async (said: string, more = '') => (await search(said, more)).map(({ id }) => id);
const marked = ({ said }: Found) =>
  said.map(({ startMs, text, marks }) => [startMs, text, marks.map(([from, to]) => text.slice(from, to))]);
const allRead = () =>
  until('all transcripts to be read', async () => {
    const { outstanding, transcriptSearch } = await scene.mirror.api('GET', '/status');
    return outstanding.sidecars === 0 && transcriptSearch?.waiting === 0;
  });
async function film(vtt: string, language?: string): Promise<string> {
  const id = await scene.film({ transcript: transcriptOf(vtt, language) });
  await scene.resync();
  await scene.mirror.assetIn(id, 'mirrored');
  await until('the transcript', async () => (await scene.mirror.asset(id)).transcript === 'mirrored');
  await allRead();
  return id;
}

describe('what was said', () => {
  let id: string;
  beforeAll(async () => {
    id = await film(talk);
  });

  test('spoken words are found soon after the asset is mirrored, with the line and its start', async () => {
    const [found] = await search('department');
    expect(found!.id).toBe(id);
    expect(marked(found!)).toEqual([[8000, 'budget of the marketing department, 50 % of it.', ['department']]]);
  });

  test('spoken words are found by their other forms, in the language of the transcript', async () => {
    expect(marked((await search('walk runs'))[0]!)).toEqual([
      [12_000, 'Nobody was running away, they were only walking.', ['running', 'walking']],
    ]);
    const other = await film(vttOf('Gestern haben wir über die Häuser und die alten Straßen gesprochen.'), 'de-AT');
    expect(await idsOf('Haus Straße')).toEqual([other]);
    const unknown = await film(vttOf('שלום לכולם וברוכים הבאים לסרט', '今日は 天気が いいですね'), 'x-none');
    expect(await idsOf('לכולם')).toEqual([unknown]);
    expect(await idsOf('天気が')).toEqual([unknown]);
  });

  test('a spoken phrase is found if it crosses the border of two cues', async () => {
    expect(marked((await search('"quarterly budget"'))[0]!)).toMatchObject([
      [4000, expect.any(String), ['quarterly', 'budget']],
    ]);
    expect(await idsOf('"budget quarterly"')).toEqual([]);
  });

  test('a search for spoken words is combined with other conditions, sorting, pages and counts', async () => {
    expect(await idsOf('budget', '&state=mirrored&q=clip&sort=-size')).toEqual([id]);
    expect(await idsOf('budget', '&state=failed')).toEqual([]);
    expect(await idsOf('budget -marketing')).toEqual([]);
    expect(await idsOf('nonsense OR budget')).toEqual([id]);
    const first = await scene.mirror.api('GET', '/assets?said=budget%20OR%20stra%C3%9Fe&limit=1');
    const second = await scene.mirror.api(
      'GET',
      `/assets?said=budget%20OR%20stra%C3%9Fe&limit=1&cursor=${first.nextCursor}`,
    );
    expect(new Set([first, second].map(({ assets }) => assets[0].id)).size).toBe(2);
    expect(second.nextCursor).toBeNull();
    expect((await scene.mirror.api('GET', '/asset-facets?said=budget')).matching).toBe(1);
  });

  test.each([
    ...[
      '"',
      '""',
      '-',
      '-budget',
      '--',
      ':*',
      "'",
      "''); --",
      '\\',
      '&|!()<->',
      'a:b*',
      '(',
      '%',
      'or',
      'or or',
      '"a" -"b',
    ],
    ...['\u{1f600}', '<b>&amp;</b>', 'the', 'x'.repeat(500), 'x '.repeat(250), '" '.repeat(250), '- '.repeat(250)],
    ...['-'.repeat(500), '-x '.repeat(160), 'x or '.repeat(100), `"${'x '.repeat(240)}"`],
  ])('a search for what was said is no error: %.20s', async (said) => {
    expect(Array.isArray(await search(said))).toBe(true);
    expect((await scene.mirror.api('GET', `/asset-facets?said=${encodeURIComponent(said)}`)).matching).toBeTypeOf(
      'number',
    );
  });

  test('the command line lists what was said below each asset, with its time', async () => {
    const { stdout } = await promisify(execFile)(
      process.execPath,
      ['src/main.ts', 'assets', '--said', '"quarterly budget" OR xyz', '--search', id],
      {
        env: {
          ...spawned,
          ASSET_MIRROR_URL: scene.ground.publicUrl,
          ADMIN_TOKEN: 'the-token-of-the-operators',
        },
      },
    );
    expect(stdout.trimEnd().split('\n')).toEqual([
      expect.stringMatching(/^ASSET /),
      expect.stringMatching(new RegExp(`^${id} `)),
      expect.stringMatching(/^ {2}0:04 {2}Today we are talking about the quarterly budget /),
    ]);
  });

  test('the words of a replaced transcript are not found any more', { tags: 'slow' }, async () => {
    const first = await film(vttOf('The first version mentions a giraffe in passing.'));
    await scene.admin.changeAsset(first, {
      content: { text: 'another file' },
      uploadDate: Date.UTC(2025, 1, 1),
      transcript: transcriptOf(vttOf('The second version mentions an elephant in passing.')),
    } as never);
    await scene.resync();
    await until('the other words', async () => (await idsOf('elephant')).includes(first));
    expect(await idsOf('giraffe')).toEqual([]);
  });

  test('an erasure leaves no spoken words in the database', { tags: 'slow' }, async () => {
    const secret = await film(vttOf('The launch code is xylophone, and nobody may know it.'));
    expect(await idsOf('xylophone')).toEqual([secret]);
    await scene.mirror.api('POST', '/erasures', {
      assetIds: [secret],
      reason: 'requested',
    });
    await until('the erasure', async () => (await scene.mirror.asset(secret)) === undefined);
    const everything = await databaseAsText(scene.ground.environment.DATABASE_URL!);
    expect([...everything].filter(([, rows]) => rows.includes('xylophon')).map(([table]) => table)).toEqual([]);
  });
});

test.each([
  ['no WebVTT', '<html>not found'],
  ['very long words', vttOf(`x${'y'.repeat(10_000)} ${'z'.repeat(1990)}`, 'q'.repeat(2047))],
  ['control characters and tags', vttOf('\u0001\u0002<b\n<i>&#0;\u{d800}', '</c>')],
  [
    'very many words',
    `WEBVTT\n\n${Array.from({ length: 20_000 }, (_, i) => `00:00:01.000 --> 00:00:02.000\nword${i} and some more of them\n\n`).join('')}`,
  ],
])('a transcript with %s does not stop mirroring, and counts as read', { tags: 'slow' }, async (_, vtt) => {
  const id = await film(vtt);
  expect(await scene.mirror.asset(id)).toMatchObject({ state: 'mirrored', transcript: 'mirrored' });
  expect(await idsOf('nothing of this')).toEqual([]);
});

test('words are deleted without the setting, found again with it, and found after a rebuild', {
  tags: 'slow',
}, async () => {
  const id = await film(vttOf('The penguin and the rabbit are good friends.'));
  const { environment } = scene.ground;
  const words = async () =>
    Number((await ask(environment.DATABASE_URL!, 'SELECT count(*) FROM transcript_passages'))[0]!.count);

  await scene.restart({ SEARCH_TRANSCRIPTS: 'false' });
  await expect(search('penguin')).rejects.toThrow(/409.*transcripts_not_searched/s);
  await expect(scene.mirror.api('GET', '/asset-facets?said=penguin')).rejects.toThrow(/409/);
  expect((await scene.mirror.api('GET', '/status')).transcriptSearch).toBeNull();
  await until('the words to be deleted', async () => (await words()) === 0);

  await scene.restart({ SEARCH_TRANSCRIPTS: 'true' });
  await allRead();
  expect(await idsOf('penguin')).toEqual([id]);

  rebuilt = await newDatabase();
  const report = { start: () => {}, problem: () => {}, progress: () => {} };
  const signal = new AbortController().signal;
  await rebuildFrom(readCopyConfig({ ...environment, DATABASE_URL: rebuilt.url }), {
    log: silent,
    stop: signal,
    report,
  });
  await scene.restart({ DATABASE_URL: rebuilt.url });
  await allRead();
  expect(await idsOf('penguin')).toEqual([id]);
});
