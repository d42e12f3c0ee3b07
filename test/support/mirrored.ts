import type { Mirrored } from '../../src/store/assets/leases.ts';

/** The data of a finished lease: an asset with media and record, without sidecars. */
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
  followUps: 0,
};
