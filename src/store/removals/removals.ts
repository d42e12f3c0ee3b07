/** Everything that is removed on purpose, and what is protected from it. */
export {
  erased,
  erasureBegins,
  erasureDetails,
  erasures,
  finishErasures,
  previewErasure,
  requestErasure,
  unknownAssets,
  waitingErasures,
} from './erasures.ts';
export { accept, companiesDue, holdCompany, holdOnly, removable, upcoming } from './gone.ts';
export { hold, holds, isProtected, release } from './holds.ts';
export {
  dueLeftovers,
  isShared,
  leftoverRemoved,
  removed,
  renewRemoval,
  stopRemoval,
  takeForRemoval,
} from './remove.ts';
export { erasedAmong, restoreTombstones, tombstone } from './tombstones.ts';
