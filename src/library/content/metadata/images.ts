import type { Metadata, Read } from './types.ts';

export async function imageMetadata(read: Read, size: number, mimeType: string): Promise<Metadata> {
  if (mimeType === 'image/svg+xml') return svgMetadata((await read(0, 64 * 1024)).toString());
  const head = await read(0, 32);
  if (head.toString('latin1', 1, 4) === 'PNG') return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) };
  if (head.toString('latin1', 0, 3) === 'GIF') return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) };
  if (head.toString('latin1', 8, 12) === 'WEBP') return webpMetadata(head);
  return head.readUInt16BE(0) === 0xffd8 ? jpegMetadata(read, size) : {};
}

/** The frame header, which has the dimensions, comes after segments of any size. */
async function jpegMetadata(read: Read, size: number): Promise<Metadata> {
  for (let offset = 2; offset < size; ) {
    const head = await read(offset, 9);
    if (head[0] !== 0xff) return {};
    const marker = head[1]!;
    if (marker === 0xff) {
      offset += 1;
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return { width: head.readUInt16BE(7), height: head.readUInt16BE(5) };
    offset += 2 + head.readUInt16BE(2);
  }
  return {};
}

function webpMetadata(head: Buffer): Metadata {
  switch (head.toString('latin1', 12, 16)) {
    case 'VP8 ':
      return { width: head.readUInt16LE(26) & 0x3fff, height: head.readUInt16LE(28) & 0x3fff };
    case 'VP8L': {
      const bits = head.readUInt32LE(21);
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
    }
    case 'VP8X':
      return { width: head.readUIntLE(24, 3) + 1, height: head.readUIntLE(27, 3) + 1 };
    default:
      return {};
  }
}

/** Width and height in pixels, or else of the view box. */
function svgMetadata(text: string): Metadata {
  const tag = /<svg\b[^>]*>/.exec(text)?.[0] ?? '';
  const pixels = (name: string) => Number(new RegExp(`\\s${name}=["']([\\d.]+)(px)?["']`).exec(tag)?.[1]);
  const [, , boxWidth, boxHeight] =
    /\sviewBox=["']([^"']*)["']/
      .exec(tag)?.[1]
      ?.trim()
      .split(/[\s,]+/)
      .map(Number) ?? [];
  const width = Math.round(pixels('width') || boxWidth || 0);
  const height = Math.round(pixels('height') || boxHeight || 0);
  return width > 0 && height > 0 ? { width, height } : {};
}
