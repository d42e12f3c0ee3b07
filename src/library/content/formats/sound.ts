import type { Part } from '../body.ts';

export type Tone = { seconds: number; rate: number; channels: 1 | 2; hertz: number };

/** A WAV file of a tone that swells and fades. No sample is made before it is read. */
export function wav(tone: Tone): Part[] {
  const frame = tone.channels * 2;
  const size = Math.round(tone.seconds * tone.rate) * frame;
  const header = Buffer.alloc(44);
  header.write('RIFF', 0);
  header.writeUInt32LE(36 + size, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(tone.channels, 22);
  header.writeUInt32LE(tone.rate, 24);
  header.writeUInt32LE(tone.rate * frame, 28);
  header.writeUInt16LE(frame, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36);
  header.writeUInt32LE(size, 40);
  const name = `tone ${tone.seconds} ${tone.rate} ${tone.channels} ${tone.hertz}`;
  return [header, { size, name, chunks: (start, end) => samples(tone, start, end) }];
}

const FRAMES_PER_CHUNK = 16 * 1024;

function* samples({ rate, channels, hertz }: Tone, start: number, end: number): Generator<Buffer> {
  const frame = channels * 2;
  for (let first = Math.floor(start / frame); first * frame < end; first += FRAMES_PER_CHUNK) {
    const last = Math.min(first + FRAMES_PER_CHUNK, Math.ceil(end / frame));
    const chunk = Buffer.alloc((last - first) * frame);
    for (let i = first; i < last; i++) {
      const seconds = i / rate;
      const swell = 0.2 + 0.15 * Math.sin(2 * Math.PI * 0.5 * seconds);
      const value = Math.round(swell * 32767 * Math.sin(2 * Math.PI * hertz * seconds));
      for (let channel = 0; channel < channels; channel++) {
        chunk.writeInt16LE(value, (i - first) * frame + channel * 2);
      }
    }
    yield chunk.subarray(Math.max(0, start - first * frame), Math.min(chunk.length, end - first * frame));
  }
}

/** An MP3 with an ID3v2.3 tag in front that says its title. */
export function mp3WithTitle(mp3: Buffer, title: string): Part[] {
  const text = Buffer.concat([Buffer.from([1, 0xff, 0xfe]), Buffer.from(title, 'utf16le')]);
  const frame = Buffer.alloc(10);
  frame.write('TIT2', 0);
  frame.writeUInt32BE(text.length, 4);
  const size = frame.length + text.length;
  const header = Buffer.from([0x49, 0x44, 0x33, 3, 0, 0, ...[21, 14, 7, 0].map((bits) => (size >> bits) & 0x7f)]);
  return [header, frame, text, mp3];
}
