import { sql } from 'kysely';

/**
 * For a row `v` of `asset_versions`: its removal began lately, so its objects may be missing. A removal that fails is tried again
 * after a day.
 */
export const isBeingRemoved = sql<boolean>`coalesce(v.removing_at > now() - interval '2 days', false)`;
