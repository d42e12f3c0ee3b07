import type { Transcript } from '../model.ts';
import { type Random, randomOf } from './random.ts';

const SENTENCES = [
  'Welcome back to the studio, everybody.',
  'We start with the wide shot and then move in.',
  'Das Licht war an diesem Morgen unglaublich schön.',
  'Could you hold that position for one more take?',
  'Here is what our customers told us last spring.',
  'The new line ships in three colours.',
  '今日は新しい製品を紹介します。',
  'Let us listen to the second version again.',
  'Nobody expected rain, but it looked wonderful.',
  'That is a wrap, thank you all very much.',
];

/** A transcript of random sentences with the length of a clip. */
export function speech(name: string, seconds: number, withWords: boolean): Transcript {
  const random = randomOf('speech', name);
  const sentences = Array.from({ length: Math.max(1, Math.round(seconds / 2.5)) }, () => random.pick(SENTENCES));
  const each = seconds / sentences.length;
  const captions = sentences.map((sentence, i) => ({ sentence, start: i * each, end: (i + 1) * each }));
  return {
    language: 'en',
    durationSec: seconds,
    text: `${sentences.join(' ')}\n`,
    vtt: `WEBVTT\n\n${captions.map(({ sentence, start, end }) => `${stamp(start)} --> ${stamp(end)}\n${sentence}\n`).join('\n')}`,
    words: withWords ? captions.flatMap((caption) => wordsOf(caption, random)) : null,
  };
}

function wordsOf({ sentence, start, end }: { sentence: string; start: number; end: number }, random: Random) {
  const words = sentence.split(' ');
  const each = (end - start) / words.length;
  return words.map((word, i) => ({
    word,
    start: milliseconds(start + i * each),
    end: milliseconds(start + (i + 0.7 + random.next() * 0.3) * each),
  }));
}

function milliseconds(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

function stamp(seconds: number): string {
  return new Date(Math.round(seconds * 1000)).toISOString().slice(11, 23);
}
