import type { Mirrored } from '../../src/store/assets/leases.ts';

/** What a worker says of an asset that has its media and its record, and nothing beside them. */
export const mirroredAlone: Mirrored = {
  detail: {},
  recordKey: 'key',
  transcriptState: 'none',
  transcriptKeys: null,
  transcriptDeadline: null,
  thumbnailState: 'none',
  thumbnail: null,
  sidecarFiles: {},
  waitMs: null,
};
