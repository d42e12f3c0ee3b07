import { type Metadata, type Read, seconds } from './types.ts';

const LARGEST_MOOV = 64 * 1024 * 1024;

/** MP4, MOV and similar formats are trees of boxes. `moov` may come before or after gigabytes of `mdat`. */
export async function mp4Metadata(read: Read, size: number): Promise<Metadata> {
  for (let offset = 0; offset + 8 <= size; ) {
    const head = await read(offset, 16);
    const { length, headSize } = boxLength(head, size - offset);
    if (head.toString('latin1', 4, 8) === 'moov' && length <= LARGEST_MOOV) {
      return movieMetadata(await read(offset + headSize, length - headSize));
    }
    offset += length;
  }
  return {};
}

function boxLength(head: Buffer, rest: number): { length: number; headSize: number } {
  const short = head.readUInt32BE(0);
  const headSize = short === 1 ? 16 : 8;
  const length = short === 1 ? Number(head.readBigUInt64BE(8)) : short || rest;
  if (length < headSize) throw new Error('A box is shorter than its header.');
  return { length, headSize };
}

function movieMetadata(moov: Buffer): Metadata {
  const header = boxes(moov, 'mvhd')[0];
  const tracks = boxes(moov, 'trak').flatMap((track) => boxes(track, 'tkhd'));
  return { ...(header && seconds(durationOf(header))), ...tracks.map(dimensionsOf).find(({ width }) => width) };
}

function* children(buffer: Buffer): Generator<{ type: string; content: Buffer }> {
  for (let offset = 0; offset + 8 <= buffer.length; ) {
    const { length, headSize } = boxLength(buffer.subarray(offset), buffer.length - offset);
    const type = buffer.toString('latin1', offset + 4, offset + 8);
    yield { type, content: buffer.subarray(offset + headSize, offset + length) };
    offset += length;
  }
}

function boxes(buffer: Buffer, type: string): Buffer[] {
  return [...children(buffer)].filter((box) => box.type === type).map(({ content }) => content);
}

function durationOf(mvhd: Buffer): number {
  return mvhd[0] === 1
    ? Number(mvhd.readBigUInt64BE(24)) / mvhd.readUInt32BE(20)
    : mvhd.readUInt32BE(16) / mvhd.readUInt32BE(12);
}

/** The dimensions as displayed: the matrix of a phone's video often rotates it by 90 degrees. */
function dimensionsOf(tkhd: Buffer): { width?: number; height?: number } {
  const matrix = tkhd[0] === 1 ? 52 : 40;
  const width = Math.round(tkhd.readUInt32BE(matrix + 36) / 65536);
  const height = Math.round(tkhd.readUInt32BE(matrix + 40) / 65536);
  if (width === 0 || height === 0) return {};
  const isTurned = tkhd.readInt32BE(matrix) === 0 && tkhd.readInt32BE(matrix + 4) !== 0;
  return isTurned ? { width: height, height: width } : { width, height };
}
