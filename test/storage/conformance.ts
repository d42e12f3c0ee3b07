import { afterAll, beforeAll, describe } from 'vitest';
import { aborts } from './conformance/aborts.ts';
import { checks } from './conformance/checks.ts';
import { failedPuts } from './conformance/failed-puts.ts';
import { fencedPuts } from './conformance/fenced-puts.ts';
import type { Ground } from './conformance/ground.ts';
import { keptObjects } from './conformance/kept-objects.ts';
import { listedKeys } from './conformance/listed-keys.ts';
import { purgedObjects } from './conformance/purged-objects.ts';
import { reads } from './conformance/reads.ts';
import { storedObjects } from './conformance/stored-objects.ts';
import { uploads } from './conformance/uploads.ts';

/** Tests an implementation for every guarantee that `storage.ts` states. */
export function conformance(name: string, open: () => Promise<Ground>): void {
  describe(name, () => {
    let ground: Ground;
    beforeAll(async () => {
      ground = await open();
    });
    afterAll(() => ground?.clear());

    const opened = () => ground;
    const storage = () => ground.storage;
    storedObjects(opened);
    failedPuts(opened);
    aborts(opened);
    keptObjects(storage);
    purgedObjects(storage);
    listedKeys(opened);
    reads(opened);
    uploads(opened);
    fencedPuts(opened);
    checks(opened);
  });
}
