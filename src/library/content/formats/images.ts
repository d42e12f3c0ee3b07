import { crc32, deflateSync } from 'node:zlib';
import { generated, type Part } from '../body.ts';
import { type Random, randomOf } from '../random.ts';

const LARGEST_COMMENT = 65_533;

/** A JPEG with comments after its first marker: other bytes, and as many as wanted, of the same picture. */
export function jpegWithComment(jpeg: Buffer, comment: string, padding: number): Part[] {
  const parts: Part[] = [jpeg.subarray(0, 2), commentHead(Buffer.byteLength(comment)), Buffer.from(comment)];
  for (let left = padding; left > 0; left -= LARGEST_COMMENT) {
    const size = Math.min(left, LARGEST_COMMENT);
    parts.push(commentHead(size), generated(`${comment} ${left}`, size));
  }
  return [...parts, jpeg.subarray(2)];
}

function commentHead(size: number): Buffer {
  return Buffer.from([0xff, 0xfe, (size + 2) >> 8, (size + 2) & 0xff]);
}

/** A picture of a few soft discs on a gradient. */
export function png(width: number, height: number, name: string): Buffer {
  const random = randomOf('png', name);
  const paint = painter(random, width, height);
  const rows = Buffer.alloc(height * (1 + width * 3));
  for (let y = 0, at = 0; y < height; y++) {
    rows[at++] = 0;
    for (let x = 0; x < width; x++) for (const value of paint(x, y)) rows[at++] = value;
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    chunk('tEXt', Buffer.from(`Comment\0${name}`, 'latin1')),
    chunk('IDAT', deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type), data]);
  const frame = Buffer.alloc(body.length + 8);
  frame.writeUInt32BE(data.length, 0);
  body.copy(frame, 4);
  frame.writeUInt32BE(crc32(body), body.length + 4);
  return frame;
}

type Colour = [number, number, number];

function painter(random: Random, width: number, height: number): (x: number, y: number) => Colour {
  const colour = (): Colour => [random.between(20, 236), random.between(20, 236), random.between(20, 236)];
  const [top, bottom] = [colour(), colour()];
  const discs = Array.from({ length: 4 }, () => ({
    x: random.next() * width,
    y: random.next() * height,
    radius: (0.1 + random.next() * 0.3) * Math.min(width, height),
    colour: colour(),
  }));
  return (x, y) => {
    const disc = discs.find((disc) => (x - disc.x) ** 2 + (y - disc.y) ** 2 < disc.radius ** 2);
    if (disc) return disc.colour;
    return top.map((value, i) => Math.round(value + ((bottom[i]! - value) * y) / height)) as Colour;
  };
}

export function svg(width: number, height: number, name: string): string {
  const random = randomOf('svg', name);
  const shapes = Array.from({ length: random.between(5, 60) }, () => {
    const fill = `hsl(${random.between(0, 360)} 60% ${random.between(35, 75)}%)`;
    const [x, y, r] = [random.between(0, width), random.between(0, height), random.between(8, width / 4)];
    return random.next() < 0.5
      ? `<circle cx="${x}" cy="${y}" r="${r}" fill="${fill}"/>`
      : `<rect x="${x}" y="${y}" width="${r}" height="${r}" rx="6" fill="${fill}"/>`;
  });
  return `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">
  <title>${name}</title>
  ${shapes.join('\n  ')}
</svg>
`;
}
