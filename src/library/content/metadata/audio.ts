import { type Metadata, type Read, seconds } from './types.ts';

export async function audioMetadata(read: Read, size: number): Promise<Metadata> {
  const head = await read(0, 64);
  const magic = head.toString('latin1', 0, 4);
  if (magic === 'RIFF') return waveMetadata(read, size);
  if (magic === 'fLaC') return flacMetadata(head);
  return mp3Metadata(read, size, head);
}

async function waveMetadata(read: Read, size: number): Promise<Metadata> {
  let bytesPerSecond = 0;
  for (let offset = 12; offset + 8 <= size; ) {
    const chunk = await read(offset, 24);
    const type = chunk.toString('latin1', 0, 4);
    const length = chunk.readUInt32LE(4);
    if (type === 'fmt ') bytesPerSecond = chunk.readUInt32LE(16);
    // After an interrupted recording, the length may be 0 or too large.
    if (type === 'data') return seconds(Math.min(length || Infinity, size - offset - 8) / bytesPerSecond);
    offset += 8 + length + (length % 2);
  }
  return {};
}

function flacMetadata(head: Buffer): Metadata {
  const rate = head.readUIntBE(18, 3) >> 4;
  const samples = (head[21]! & 0xf) * 2 ** 32 + head.readUInt32BE(22);
  return seconds(samples / rate);
}

const BITRATES = {
  mpeg1: [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320],
  mpeg2: [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
};
const RATES = [44_100, 48_000, 32_000];

/** From the number of frames, if the first frame contains it (Xing), or else from size and bit rate. */
async function mp3Metadata(read: Read, size: number, head: Buffer): Promise<Metadata> {
  const hasTag = head.toString('latin1', 0, 3) === 'ID3';
  const tagSize = hasTag ? 10 + head.subarray(6, 10).reduce((sum, byte) => sum * 128 + byte, 0) : 0;
  const frame = await read(tagSize, 256);
  if (frame[0] !== 0xff || (frame[1]! & 0xe6) !== 0xe2) return {};
  const version = (frame[1]! >> 3) & 3;
  const isMpeg1 = version === 3;
  const bitrate = (isMpeg1 ? BITRATES.mpeg1 : BITRATES.mpeg2)[frame[2]! >> 4]! * 1000;
  const rate = RATES[(frame[2]! >> 2) & 3]! / (isMpeg1 ? 1 : version === 2 ? 2 : 4);
  const samplesPerFrame = isMpeg1 ? 1152 : 576;
  const xing = Math.max(frame.indexOf('Xing'), frame.indexOf('Info'));
  if (xing > 0 && frame[xing + 7]! & 1) return seconds((frame.readUInt32BE(xing + 8) * samplesPerFrame) / rate);
  return seconds(((size - tagSize) * 8) / bitrate);
}
