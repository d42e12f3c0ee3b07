// @module-tag slow
import { withMirrorIdCheck } from '../../src/storage/mirror-id.ts';
import { conformance } from './conformance.ts';
import { newDirectory } from './grounds.ts';
import { newRecords } from './identified-directory.ts';

conformance('a directory that is recognized by its id', async () => {
  const [ground, records] = await Promise.all([newDirectory(), newRecords()]);
  const { id } = await records.open();
  return {
    ...ground,
    storage: withMirrorIdCheck(ground.storage, id),
    async clear() {
      await ground.clear();
      await records.clear();
    },
  };
});
