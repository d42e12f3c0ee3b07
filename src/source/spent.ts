import { collect } from '../collect.ts';

/** So much is passed on between two collections; each takes under a millisecond. */
const collectEvery = 4 << 20;

let passedOn = 0;

/**
 * To be called when `bytes` of a body have been passed on. V8 collects young objects when they fill their space, and counts
 * the few bytes of a buffer's object, not the 64 KiB that it holds: what is spent would wait in its tens of megabytes.
 */
export function spent(bytes: number): void {
  passedOn += bytes;
  if (passedOn < collectEvery) return;
  passedOn = 0;
  collect({ type: 'minor' });
}
