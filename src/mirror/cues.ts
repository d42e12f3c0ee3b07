import type { Passage } from '../store/transcripts/transcripts.ts';

/** One or several cues of a WebVTT file, as a line of text. */
interface Line {
  startMs: number;
  text: string;
}

/** Characters per cue. The rest is cut, because a longer cue is not speech. */
const longestCue = 2000;
/** Shorter cues are joined with the next ones, unless these start much later. */
const shortLine = 30;
const longestGapMs = 10_000;
/** Characters per passage, and how many of the next one it repeats, so that a phrase across the border is found. */
const passageLength = 1200;
const overlap = 120;
/** About 50 hours of speech. */
const mostPassages = 2000;

/** The passages of a WebVTT file, in its order. Cues without text, and lines outside of cues, are ignored. */
export function passagesOf(vtt: string): Passage[] {
  const lines = linesOf(vtt);
  const passages: Passage[] = [];
  for (let next = 0; next < lines.length && passages.length < mostPassages; ) {
    const first = next;
    next = after(lines, first, passageLength);
    const passage = lines.slice(first, after(lines, next, overlap));
    passages.push({ starts: passage.map(({ startMs }) => startMs), lines: passage.map(({ text }) => text) });
  }
  return passages;
}

/** The index after the lines that have at least `length` characters together. */
function after(lines: Line[], first: number, length: number): number {
  let end = first;
  for (let sum = 0; end < lines.length && sum < length; end++) sum += lines[end]!.text.length;
  return end;
}

function linesOf(vtt: string): Line[] {
  const lines: Line[] = [];
  for (const cue of cuesOf(vtt)) {
    const text = spoken(cue.text);
    if (text === '') continue;
    const last = lines.at(-1);
    const gapMs = cue.startMs - (last?.startMs ?? 0);
    if (last && last.text.length < shortLine && gapMs >= 0 && gapMs < longestGapMs) last.text += ` ${text}`;
    else lines.push({ startMs: cue.startMs, text });
  }
  return lines;
}

function* cuesOf(vtt: string): Generator<Line> {
  let cue: Line | undefined;
  for (const line of vtt.split(/\r\n|\r|\n/)) {
    if (line.includes('-->') || line.trim() === '') {
      if (cue) yield cue;
      const startMs = timeOf(line);
      cue = startMs === undefined ? undefined : { startMs, text: '' };
    } else if (cue && cue.text.length < longestCue) cue.text += ` ${line.slice(0, longestCue)}`;
  }
  if (cue) yield cue;
}

/** When a cue starts, from its line of times. */
function timeOf(line: string): number | undefined {
  const [, hours = '0', minutes, seconds, fraction] =
    /^\s*(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})[.,](\d{3})\s*-->/.exec(line) ?? [];
  if (minutes === undefined || Number(hours) > 500) return undefined;
  return ((Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)) * 1000 + Number(fraction);
}

const entities: Record<string, string> = {
  amp: '&',
  lt: ' ',
  gt: ' ',
  nbsp: ' ',
  lrm: '\u200e',
  rlm: '\u200f',
  quot: '"',
};

/** The text of a cue without tags, and without characters that PostgreSQL or its parser would take for something else. */
const spoken = (text: string): string =>
  text
    .slice(0, longestCue)
    .replace(/<[^<>]*>/g, '')
    .replace(/&(\w{1,5});/g, (entity, name) => entities[name] ?? entity)
    .replace(/[<>\p{Cc}]/gu, ' ')
    .toWellFormed()
    .replace(/\s+/g, ' ')
    .trim();
