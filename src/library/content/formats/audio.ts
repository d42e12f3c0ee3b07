import type { Part } from '../body.ts';

export type Tone = { title: string; seconds: number; rate: number; channels: 1 | 2; hertz: number };

/** A WAV file with a title and a tone that swells and fades. Samples are generated when they are read. */
export function wav(tone: Tone): Part[] {
  const frame = tone.channels * 2;
  const size = Math.round(tone.seconds * tone.rate) * frame;
  const title = Buffer.from(`${tone.title}\0`);
  const info = riffChunk('LIST', Buffer.concat([Buffer.from('INFO'), riffChunk('INAM', title)]));
  const format = Buffer.alloc(16);
  format.writeUInt16LE(1, 0);
  format.writeUInt16LE(tone.channels, 2);
  format.writeUInt32LE(tone.rate, 4);
  format.writeUInt32LE(tone.rate * frame, 8);
  format.writeUInt16LE(frame, 12);
  format.writeUInt16LE(16, 14);
  const header = Buffer.concat([
    Buffer.from('RIFF\0\0\0\0WAVE'),
    riffChunk('fmt ', format),
    info,
    riffChunk('data', Buffer.alloc(0), size),
  ]);
  header.writeUInt32LE(header.length - 8 + size, 4);
  const name = `tone ${tone.seconds} ${tone.rate} ${tone.channels} ${tone.hertz}`;
  return [header, { size, name, chunks: (start, end) => samples(tone, start, end) }];
}

function riffChunk(type: string, content: Buffer, size = content.length): Buffer {
  const head = Buffer.alloc(8);
  head.write(type);
  head.writeUInt32LE(size, 4);
  return Buffer.concat([head, content, Buffer.alloc(content.length % 2)]);
}

function* samples(tone: Tone, start: number, end: number): Generator<Buffer> {
  const period = twoSecondsOf(tone);
  for (let at = start; at < end; ) {
    const from = at % period.length;
    const piece = period.subarray(from, from + end - at);
    yield piece;
    at += piece.length;
  }
}

/** One period: a whole number of waves and one swell. */
function twoSecondsOf({ rate, channels, hertz }: Tone): Buffer {
  const samples = Buffer.alloc(2 * rate * channels * 2);
  for (let i = 0, at = 0; i < 2 * rate; i++) {
    const seconds = i / rate;
    const swell = 0.2 + 0.15 * Math.sin(Math.PI * seconds);
    const value = Math.round(swell * 32767 * Math.sin(2 * Math.PI * hertz * seconds));
    for (let channel = 0; channel < channels; channel++) at = samples.writeInt16LE(value, at);
  }
  return samples;
}

/** Adds an ID3v2.3 tag with a title at the beginning. */
export function mp3WithTitle(mp3: Buffer, title: string): Part[] {
  const text = Buffer.concat([Buffer.from([1, 0xff, 0xfe]), Buffer.from(title, 'utf16le')]);
  const frame = Buffer.alloc(10);
  frame.write('TIT2', 0);
  frame.writeUInt32BE(text.length, 4);
  const size = frame.length + text.length;
  const header = Buffer.from([0x49, 0x44, 0x33, 3, 0, 0, ...[21, 14, 7, 0].map((bits) => (size >> bits) & 0x7f)]);
  return [header, frame, text, mp3];
}
