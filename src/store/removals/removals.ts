/** Everything that is removed on purpose, and what is protected from it. */

export { accept, companiesDue, endHeldRemovals, removable, setHeldRemovals, upcoming } from './due-removals.ts';
export {
  eraseAgain,
  erasureDetails,
  erasures,
  finishAssetErasure,
  finishErasures,
  previewErasure,
  requestErasure,
  saveErasureCounts,
  unknownAssets,
  waitingErasures,
} from './erasures.ts';
export { heldTooLate, hold, holds, isProtected, release } from './holds.ts';
export {
  beginRemoval,
  dueLeftovers,
  finishRemoval,
  isShared,
  leftoverRemoved,
  renewRemoval,
  stopRemoval,
  takeForRemoval,
} from './remove.ts';
export { beginErasing, erasedAmong, restoreTombstones, tombstone, tombstones } from './tombstones.ts';
