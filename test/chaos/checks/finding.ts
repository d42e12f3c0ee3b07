import type { Reason } from '../../../src/floor/reason-codes.ts';

export interface Finding {
  what: string;
  /** What was checked. */
  seen: string;
  problems: string[];
}

/** An asset in the records of the mirror. */
export interface Row {
  id: string;
  company_id: string;
  state: string;
  reason: Reason | null;
  media: { key: string; bytes: number; variant: string; version: string } | null;
  record_key: string | null;
  transcript_state: string;
  transcript_keys: string[] | null;
  thumbnail_state: string;
  thumbnail: { key: string; bytes: number } | null;
  upload: { id: string } | null;
  mirrored_at: Date | null;
}
