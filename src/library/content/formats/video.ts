import { generated, type Part } from '../body.ts';

/** Adds a `free` box, which players skip, at the end of an MP4 or MOV. */
export function withFreeBox(video: Buffer, name: string, padding: number): Part[] {
  const text = Buffer.from(name);
  const head = Buffer.alloc(8);
  head.writeUInt32BE(8 + text.length + padding, 0);
  head.write('free', 4);
  return [video, head, text, generated(name, padding)];
}

/** Adds a Void element, which players skip, at the end of a WebM. */
export function withVoid(webm: Buffer, name: string, padding: number): Part[] {
  const text = Buffer.from(name);
  const head = Buffer.alloc(9);
  head[0] = 0xec;
  head.writeBigUInt64BE((1n << 56n) | BigInt(text.length + padding), 1);
  return [webm, head, text, generated(name, padding)];
}
