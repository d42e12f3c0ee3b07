import { crc32, deflateSync } from 'node:zlib';
import { generated, type Part } from '../body.ts';
import { type Random, randomOf } from '../random.ts';

const COMMENT = 0xfe;
const PRIVATE = 0xef;
const LARGEST_SEGMENT = 65_533;

/** Adds a comment and unused segments after the first marker: the same picture in other bytes. */
export function jpegWithComment(jpeg: Buffer, comment: string, padding: number): Part[] {
  const parts: Part[] = [jpeg.subarray(0, 2), segmentHead(COMMENT, Buffer.byteLength(comment)), Buffer.from(comment)];
  for (let left = padding; left > 0; left -= LARGEST_SEGMENT) {
    const size = Math.min(left, LARGEST_SEGMENT);
    parts.push(segmentHead(PRIVATE, size), generated(`${comment} ${left}`, size));
  }
  return [...parts, jpeg.subarray(2)];
}

function segmentHead(marker: number, size: number): Buffer {
  return Buffer.from([0xff, marker, (size + 2) >> 8, (size + 2) & 0xff]);
}

/** A picture of a few discs on a gradient. */
export function png(width: number, height: number, name: string): Buffer {
  const rows = paint(width, height, randomOf('png', name));
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

/** Rows of RGB pixels. Each begins with the filter type 0 (none). */
function paint(width: number, height: number, random: Random): Buffer {
  const colour = (): Colour => [random.between(20, 236), random.between(20, 236), random.between(20, 236)];
  const [top, bottom] = [colour(), colour()];
  const discs = Array.from({ length: 4 }, () => ({
    x: random.next() * width,
    y: random.next() * height,
    radius: (0.1 + random.next() * 0.3) * Math.min(width, height),
    colour: colour(),
  }));
  const rowSize = 1 + width * 3;
  const rows = Buffer.alloc(height * rowSize);
  for (let y = 0; y < height; y++) {
    const row = rows.subarray(y * rowSize, (y + 1) * rowSize);
    const fill = (from: number, to: number, [red, green, blue]: Colour) => {
      for (let x = Math.max(0, from); x < Math.min(width, to); x++) {
        row[1 + x * 3] = red;
        row[2 + x * 3] = green;
        row[3 + x * 3] = blue;
      }
    };
    fill(0, width, top.map((value, i) => Math.round(value + ((bottom[i]! - value) * y) / height)) as Colour);
    for (const disc of discs) {
      const half = Math.sqrt(disc.radius ** 2 - (y - disc.y) ** 2);
      if (half > 0) fill(Math.round(disc.x - half), Math.round(disc.x + half), disc.colour);
    }
  }
  return rows;
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
