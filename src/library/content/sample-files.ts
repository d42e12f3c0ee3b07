import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Body, bodyOf } from './body.ts';
import { mp3WithTitle, wav } from './formats/audio.ts';
import { docx, pdf, zip } from './formats/documents.ts';
import { jpegWithComment, png, svg } from './formats/images.ts';
import { withFreeBox, withVoid } from './formats/video.ts';
import type { Random } from './random.ts';

/** A file with its metadata. */
type Original = {
  extension: string;
  body: Body;
  mp4?: Body;
  thumbnail?: () => Body;
  width?: number;
  height?: number;
  duration?: number;
};

/** Makes a file. Each name gets different bytes. */
export type Maker = (name: string, random: Random) => Original;

const sample = (file: string) => readFileSync(join(import.meta.dirname, '..', 'samples', file));
const thumbnail = (name: string) => {
  const picture = sample(`${name}.thumbnail.jpg`);
  return () => bodyOf('image/jpeg', [picture]);
};

type VideoFacts = { extension: string; type: string; width: number; height: number; duration: number };

function video(file: string, facts: VideoFacts): Maker {
  const original = sample(`${file}.${facts.extension}`);
  const rendition = sample(`${file}.rendition.mp4`);
  const picture = thumbnail(file);
  const { type, ...rest } = facts;
  const pad = facts.extension === 'webm' ? withVoid : withFreeBox;
  return (name, random) => ({
    ...rest,
    body: bodyOf(type, pad(original, name, padding(random, 3_000_000))),
    mp4: bodyOf('video/mp4', withFreeBox(rendition, `${name} (rendition)`, padding(random, 400_000))),
    thumbnail: picture,
  });
}

function photograph(file: string, width: number, height: number): Maker {
  const original = sample(`${file}.jpg`);
  const picture = thumbnail(file);
  return (name, random) => ({
    extension: 'jpg',
    body: bodyOf('image/jpeg', jpegWithComment(original, name, padding(random, 2_000_000))),
    thumbnail: picture,
    width,
    height,
  });
}

export const clip = video('clip', { extension: 'mp4', type: 'video/mp4', width: 320, height: 180, duration: 2 });
export const story = video('story', { extension: 'mp4', type: 'video/mp4', width: 180, height: 320, duration: 3.2 });
export const camera = video('camera', {
  extension: 'mov',
  type: 'video/quicktime',
  width: 320,
  height: 180,
  duration: 4,
});
export const screen = video('screen', { extension: 'webm', type: 'video/webm', width: 240, height: 136, duration: 3 });

export const landscape = photograph('landscape', 1200, 800);
export const portrait = photograph('portrait', 800, 1200);
export const square = photograph('square', 1000, 1000);

export const picture: Maker = (name, random) => {
  const [width, height] = random.pick([
    [480, 300],
    [300, 480],
    [400, 400],
  ] as const);
  return {
    extension: 'png',
    body: bodyOf('image/png', [png(width, height, name)]),
    thumbnail: () => bodyOf('image/png', [png(width / 4, height / 4, name)]),
    width,
    height,
  };
};

export const drawing: Maker = (name, random) => {
  const width = random.between(2, 9) * 100;
  const height = random.between(2, 9) * 100;
  return {
    extension: 'svg',
    body: bodyOf('image/svg+xml', [Buffer.from(svg(width, height, name))]),
    thumbnail: () => bodyOf('image/png', [png(128, 128, name)]),
    width,
    height,
  };
};

export const tone: Maker = (name, random) => {
  const seconds = random.between(2, 48) / 2;
  const rate = random.pick([22_050, 44_100]);
  const channels = random.pick([1, 2] as const);
  return {
    extension: 'wav',
    body: bodyOf('audio/wav', wav({ title: name, seconds, rate, channels, hertz: random.between(110, 880) })),
    duration: seconds,
  };
};

const jingleFile = sample('jingle.mp3');

export const jingle: Maker = (name) => ({
  extension: 'mp3',
  body: bodyOf('audio/mpeg', mp3WithTitle(jingleFile, name)),
  duration: 3.056,
});

const prose = (name: string, random: Random, most: number) =>
  Array.from({ length: random.between(3, most) }, (_, i) => `${i + 1}. ${name}: ${random.hex(24)} ${random.hex(12)}`);

export const paper: Maker = (name, random) => ({
  extension: 'pdf',
  body: bodyOf('application/pdf', [pdf(name, prose(name, random, 2000))]),
  thumbnail: () => bodyOf('image/png', [png(113, 160, name)]),
});

export const letter: Maker = (name, random) => ({
  extension: 'docx',
  body: bodyOf('application/vnd.openxmlformats-officedocument.wordprocessingml.document', [
    docx(prose(name, random, 800)),
  ]),
});

export const archive: Maker = (name, random) => ({
  extension: 'zip',
  body: bodyOf('application/zip', [
    zip([
      { name: 'Readme – bitte lesen.txt', data: Buffer.from(prose(name, random, 400).join('\n')) },
      { name: 'logo/logo.svg', data: Buffer.from(svg(200, 200, name)) },
      { name: 'logo/logo.png', data: png(128, 128, name) },
    ]),
  ]),
});

/** Most files stay small. One in four becomes large. */
function padding(random: Random, most: number): number {
  return random.next() < 0.25 ? random.between(100_000, most) : random.between(0, 4000);
}
