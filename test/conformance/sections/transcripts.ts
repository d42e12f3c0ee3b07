import { check, Failure, NotTried, same, shaped, that } from '../check.ts';
import { type Answer, describeAnswer } from '../http.ts';
import { segment } from '../reading.ts';
import { type Asset, NoSpeech, Transcript } from '../shapes.ts';
import type { World } from '../world.ts';
import { IMAGE, isTimed, SOUND, VIDEO } from './asset.ts';

const SPOKEN = {
  language: 'de',
  durationSec: 2.5,
  text: 'Schön hier.',
  vtt: 'WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nSchön hier.\n',
  words: [
    { word: 'Schön', start: 0.1, end: 0.9 },
    { word: 'hier.', start: 1, end: 1.9 },
  ],
};

function transcript(world: World, id: string, format?: string): Promise<Answer> {
  return world.get(`/assets/${segment(id)}/transcript${format === undefined ? '' : `?format=${format}`}`);
}

type Kind = 'speech' | 'no words' | 'no speech';

async function kindOf(world: World, { id }: Asset): Promise<Kind | undefined> {
  const { status, json } = await transcript(world, id, 'json');
  if (status !== 200) return undefined;
  const { noSpeech, words } = json as { noSpeech?: boolean; words?: unknown };
  return noSpeech ? 'no speech' : words === null ? 'no words' : 'speech';
}

function spoken(world: World, kind: Kind): Promise<Asset> {
  const made = { speech: SPOKEN, 'no words': { ...SPOKEN, words: null }, 'no speech': { noSpeech: true } }[kind];
  const make = { ...VIDEO, status: 'ready' as const, transcript: made };
  const names = {
    speech: 'transcript with words',
    'no words': 'transcript without word timing',
    'no speech': 'clip without speech',
  };
  const isAnnounced = (it: Asset) => isTimed(it) && it.hasTranscript;
  return world.asset(names[kind], make, isAnnounced, async (it) => (await kindOf(world, it)) === kind);
}

function ok(what: string, answer: Answer, type: RegExp): string {
  if (answer.status !== 200) throw new Failure(`status 200 for ${what}`, describeAnswer(answer));
  that(`${what} as ${type.source}`, type.test(answer.header('content-type') ?? ''), answer.header('content-type'));
  return answer.text;
}

export const transcripts = [
  check('4.8', 'vtt', 'format=vtt, the default, is WebVTT as text/vtt.', async (world) => {
    const { id } = await spoken(world, 'speech');
    const vtt = ok('format=vtt', await transcript(world, id, 'vtt'), /^text\/vtt/);
    that('captions that begin with WEBVTT', /^\uFEFF?WEBVTT/.test(vtt), vtt.slice(0, 30));
    same('what comes without format', ok('no format', await transcript(world, id), /^text\/vtt/), vtt);
  }),

  check('4.8', 'txt', 'format=txt is plain text as text/plain.', async (world) => {
    const { id } = await spoken(world, 'speech');
    const text = ok('format=txt', await transcript(world, id, 'txt'), /^text\/plain/);
    that('text, not captions', !text.startsWith('WEBVTT') && text.trim() !== '', text.slice(0, 30));
  }),

  check('2.8', 'json', 'format=json is the transcript object: text, captions and word timings.', async (world) => {
    const { id } = await spoken(world, 'speech');
    const answer = await transcript(world, id, 'json');
    ok('format=json', answer, /^application\/json/);
    const found = shaped('the transcript', Transcript, answer.json);
    same('assetId', found.assetId, id);
    for (const { word, start, end } of found.words ?? [])
      that(`${word} to end after it starts`, start <= end, [start, end]);
    same('the captions of format=vtt', (await transcript(world, id, 'vtt')).text, found.vtt);
    same('the text of format=txt', (await transcript(world, id, 'txt')).text, found.text);
    if (world.own) same('what was said', { ...SPOKEN, assetId: id }, found);
  }),

  check('2.8', 'words-null', 'words is null on transcripts without word timing.', async (world) => {
    const { id } = await spoken(world, 'no words');
    const { words } = shaped('the transcript', Transcript, (await transcript(world, id, 'json')).json);
    same('words', words, null);
  }),

  check('4.8', 'no-speech', 'A clip without speech answers 200 with only assetId and noSpeech.', async (world) => {
    const { id } = await spoken(world, 'no speech');
    for (const format of ['json', 'vtt', 'txt', undefined]) {
      const answer = await transcript(world, id, format);
      if (answer.status !== 200) throw new Failure(`status 200 for format=${format}`, describeAnswer(answer));
      if (format === 'json') {
        shaped('the answer', NoSpeech, answer.json);
        same('assetId', (answer.json as { assetId: string }).assetId, id);
      } else world.observe(`no speech with ${format ?? 'no'} format: ${answer.header('content-type')}`);
    }
  }),

  check(
    '4.8',
    'not-yet',
    'A transcript that does not exist yet is 404; later it is there, and hasTranscript says so.',
    async (world) => {
      const none = { ...SOUND, transcript: null };
      const { id, hasTranscript } = await world.asset(
        'clip without a transcript',
        none,
        (it) => isTimed(it) && !it.hasTranscript,
      );
      same('hasTranscript', hasTranscript, false);
      for (const format of [undefined, 'vtt', 'txt', 'json']) {
        same(`the status of ${format ?? 'no format'}`, (await transcript(world, id, format)).status, 404);
      }
      if (!world.admin || !world.own) return;
      await world.admin.changeAsset(id, { transcript: SPOKEN });
      same('hasTranscript afterwards', (await world.detail(id)).hasTranscript, true);
      same('the status afterwards', (await transcript(world, id)).status, 200);
    },
  ),

  check('4.8', 'timed-only', 'Only videos and audio have transcripts.', async (world) => {
    const picture = await world.asset('image', IMAGE, (it) => it.mimeType.startsWith('image/'));
    same('hasTranscript of an image', picture.hasTranscript, false);
    same('the status', (await transcript(world, picture.id)).status, 404);
  }),

  check('4.8', 'has-transcript', 'If hasTranscript is true, the transcript exists.', async (world) => {
    const company = await world.listed();
    if (world.own) for (const kind of ['speech', 'no words', 'no speech'] as const) await spoken(world, kind);
    const all = await world.list(company.id);
    const announced = all.filter((it) => it.hasTranscript).slice(0, 20);
    if (announced.length === 0) throw new NotTried('no asset here has a transcript');
    const late = [];
    for (const { id, mimeType } of announced) {
      that('only videos and audio', /^(video|audio)\//.test(mimeType), mimeType);
      const { status } = await transcript(world, id);
      // An announced transcript may be late: 404 means that it does not exist yet.
      if (status === 404) late.push(id);
      else same(`the status of the transcript of ${id}`, status, 200);
    }
    that('one of them at least', late.length < announced.length, 'none of them exists');
    if (late.length > 0) world.observe(`${late.length} of ${announced.length} announced transcripts are not there yet`);
  }),

  check('4.8', 'format-unknown', 'An unknown format does not cause a server error.', async (world) => {
    const { id } = await spoken(world, 'speech');
    const { status } = await transcript(world, id, 'srt');
    that('an answer other than 5xx', status < 500, `status ${status}`);
    world.observe(`an unknown format: status ${status}`);
  }),
];
