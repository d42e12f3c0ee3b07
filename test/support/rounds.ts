/** Makes the incremental syncs of all connections due. The first round of a dispatcher that starts after this ends `untilARound`. */
export const syncsDue = `UPDATE connections SET scheduled_sync_at = 'epoch', news_at = now() + interval '1 day'`;

/** Returns no row after a whole round: at its end, the dispatcher corrects times in the future. */
export const untilARound = 'SELECT FROM connections WHERE news_at > now()';
