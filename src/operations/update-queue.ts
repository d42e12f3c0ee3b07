import { within } from '../floor/within.ts';

/** Waits for a change of the queue, at most 2 s. It may fail: then the dispatcher finds what is to be done in the database. */
export const updateQueue = (change: Promise<unknown>): Promise<unknown> => within(2000, change).catch(() => {});
