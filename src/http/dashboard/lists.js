import { api, queryOf } from './api.js';
import { draw } from './state.js';

/** So many rows are asked for at once; what is shown is asked for again while things change. */
const page = 50;
const most = 250;

/**
 * A list of the API that is shown from its beginning, grows on request, and is kept as it is now.
 * @template T
 * @param {string} path
 * @param {string} field of the answer
 */
export function listOf(path, field) {
  let wantedRows = page;
  /** @type {Record<string, string | undefined>} */
  let query = {};
  let asked = 0;
  const list = {
    /** @type {T[] | undefined} */
    rows: undefined,
    /** @type {Error | undefined} */
    error: undefined,
    isMore: false,

    /** @param {Record<string, string | undefined>} next */
    filter(next) {
      if (JSON.stringify(next) === JSON.stringify(query) && list.rows) return list.refresh();
      query = next;
      wantedRows = page;
      list.rows = undefined;
      return list.refresh();
    },

    more() {
      wantedRows += page;
      return list.refresh();
    },

    async refresh() {
      const turn = ++asked;
      try {
        /** @type {T[]} */
        const rows = [];
        /** @type {string | null} */
        let cursor = null;
        do {
          /** @type {Record<string, any>} */
          const answer = await api(
            `${path}${queryOf({ ...query, cursor, limit: Math.min(most, wantedRows - rows.length) })}`,
          );
          rows.push(...answer[field]);
          cursor = answer.nextCursor;
        } while (cursor !== null && rows.length < wantedRows);
        if (turn !== asked) return;
        list.rows = rows;
        list.isMore = cursor !== null;
        list.error = undefined;
      } catch (error) {
        if (turn === asked) list.error = /** @type {Error} */ (error);
      }
      draw();
    },
  };
  return list;
}

/** `work` a while after it was last asked for. @param {() => void} work @param {number} ms */
export function later(work, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
}
