import { type Metadata, type Read, seconds } from './types.ts';

const SEGMENT = 0x18538067;
const INFO = 0x1549a966;
const TRACKS = 0x1654ae6b;
const CLUSTER = 0x1f43b675;
const SCALE = 0x2ad7b1;
const DURATION = 0x4489;
const TRACK = 0xae;
const VIDEO = 0xe0;
const WIDTH = 0xb0;
const HEIGHT = 0xba;

/** The metadata of WebM and Matroska is within the first MiB, before the clusters. */
const HEAD = 1024 * 1024;

export async function matroskaMetadata(read: Read): Promise<Metadata> {
  const facts: Metadata = {};
  let scale = 1_000_000;
  let ticks = 0;
  const walk = (buffer: Buffer): void => {
    for (const { id, content } of elements(buffer)) {
      if (id === SEGMENT || id === INFO || id === TRACKS || id === TRACK || id === VIDEO) walk(content);
      else if (id === CLUSTER) return;
      else if (id === SCALE) scale = content.readUIntBE(0, content.length);
      else if (id === DURATION) ticks = content.length === 8 ? content.readDoubleBE(0) : content.readFloatBE(0);
      else if (id === WIDTH) facts.width ??= content.readUIntBE(0, content.length);
      else if (id === HEIGHT) facts.height ??= content.readUIntBE(0, content.length);
    }
  };
  walk(await read(0, HEAD));
  return { ...facts, ...seconds((ticks * scale) / 1e9) };
}

function* elements(buffer: Buffer): Generator<{ id: number; content: Buffer }> {
  for (let offset = 0; offset + 2 <= buffer.length; ) {
    const idLength = Math.clz32(buffer[offset]!) - 23;
    const sizeAt = offset + idLength;
    if (idLength > 4 || sizeAt >= buffer.length) return;
    const sizeLength = Math.clz32(buffer[sizeAt]!) - 23;
    const start = sizeAt + sizeLength;
    if (sizeLength > 8 || start > buffer.length) return;
    const size = vint(buffer.subarray(sizeAt, start));
    yield { id: buffer.readUIntBE(offset, idLength), content: buffer.subarray(start, start + size) };
    offset = start + size;
  }
}

/** A size. All ones means unknown: to the end of the file. */
function vint(bytes: Buffer): number {
  const mask = 0x80 >> (bytes.length - 1);
  let value = BigInt(bytes[0]! & (mask - 1));
  for (const byte of bytes.subarray(1)) value = (value << 8n) | BigInt(byte);
  return value === (1n << BigInt(7 * bytes.length)) - 1n ? Number.MAX_SAFE_INTEGER : Number(value);
}
