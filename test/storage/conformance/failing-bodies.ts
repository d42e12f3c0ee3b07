import { PassThrough, Readable } from 'node:stream';
import { expect } from 'vitest';
import { bytesOf, KiB, MiB, streaming } from '../bodies.ts';
import { Broken } from './ground.ts';

const small = 100;
const large = 8 * MiB;
const parts = 40 * MiB;

interface Case {
  what: string;
  declared: number | undefined;
  body: () => Readable;
  error: unknown;
}

const throws = () => {
  throw new Broken();
};

/** The error of a body that breaks, as it arrives. */
export const broken = expect.objectContaining({ name: 'Broken' });
const says = (message: RegExp) => expect.objectContaining({ message: expect.stringMatching(message) });

const brokenBodies = (declared: number): Case[] => [
  { what: 'breaks at once', declared, body: () => streaming(bytesOf(0), throws), error: broken },
  {
    what: 'breaks in the middle',
    declared,
    body: () => streaming(bytesOf(declared / 2), throws),
    error: broken,
  },
  {
    what: 'breaks behind its last byte',
    declared,
    body: () => streaming(bytesOf(declared), throws),
    error: broken,
  },
  {
    what: 'breaks behind its last byte and an empty chunk',
    declared,
    body: () => {
      const body = new PassThrough();
      body.write(bytesOf(declared));
      body.write(Buffer.alloc(0), () => body.destroy(new Broken()));
      return body;
    },
    error: broken,
  },
];

const wrongLengths = (declared: number): Case[] => [
  {
    what: 'ends before its first byte',
    declared,
    body: () => streaming(bytesOf(0)),
    error: says(/ended at byte 0 of/),
  },
  {
    what: 'is one byte short',
    declared,
    body: () => streaming(bytesOf(declared - 1)),
    error: says(new RegExp(`ended at byte ${declared - 1} of ${declared}`)),
  },
  {
    what: 'is one byte long, in the same chunk',
    declared,
    body: () => streaming(bytesOf(declared + 1), () => {}, declared + 1),
    error: says(/continues after/),
  },
  {
    what: 'is one byte long, in a later chunk',
    declared,
    body: () => streaming(bytesOf(declared + 1), () => {}, declared),
    error: says(/continues after/),
  },
  {
    what: 'goes on without end',
    declared,
    body: () =>
      Readable.from(
        (async function* () {
          for (;;) yield Buffer.alloc(64 * KiB);
        })(),
        { objectMode: false },
      ),
    error: says(/continues after/),
  },
];

const closedBodies = (declared: number): Case[] => [
  {
    what: 'is closed without an error in the middle',
    declared,
    body: () => closing(declared / 2),
    error: says(/was closed at byte \d+, before its end/),
  },
  {
    what: 'was closed before',
    declared,
    body: () => streaming(bytesOf(declared)).destroy(),
    error: says(/was closed at byte 0, before its end/),
  },
  {
    what: 'had broken before',
    declared,
    body: () =>
      streaming(bytesOf(declared))
        .on('error', () => {})
        .destroy(new Broken()),
    error: broken,
  },
];

const emptyBodies: Case[] = [
  {
    what: 'is declared empty and has a byte',
    declared: 0,
    body: () => streaming(bytesOf(1)),
    error: says(/continues after/),
  },
  { what: 'is declared empty and breaks', declared: 0, body: () => streaming(bytesOf(0), throws), error: broken },
];

const unknownLengths: Case[] = [
  {
    what: 'of unknown length breaks at once',
    declared: undefined,
    body: () => streaming(bytesOf(0), throws),
    error: broken,
  },
  {
    what: 'of unknown length breaks',
    declared: undefined,
    body: () => streaming(bytesOf(small), throws),
    error: broken,
  },
  {
    what: 'of unknown length breaks after 40 MiB',
    declared: undefined,
    body: () => streaming(bytesOf(parts), throws),
    error: broken,
  },
  {
    what: 'of unknown length is closed after 40 MiB',
    declared: undefined,
    body: () => closing(parts),
    error: says(/was closed at byte \d+, before its end/),
  },
];

/** Bodies that cannot be stored, and the error of each. */
export const failingBodies: Case[] = [
  ...[small, large].flatMap((declared) => [
    ...brokenBodies(declared),
    ...wrongLengths(declared),
    ...closedBodies(declared),
  ]),
  ...emptyBodies,
  ...unknownLengths,
];

/** A body of this length that is closed without an error, and before its end. */
function closing(length: number): Readable {
  const bytes = bytesOf(length);
  let at = 0;
  return new Readable({
    read() {
      if (at === length) this.destroy();
      else this.push(bytes.subarray(at, at + 64 * KiB));
      at = Math.min(length, at + 64 * KiB);
    },
  });
}
