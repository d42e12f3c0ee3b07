import { api, queryOf } from './api.js';
import { draw } from './state.js';

const pageSize = 50;
/** The maximum rows of a page of the API. */
const mostRows = 250;

/**
 * The rows of a list of the API: the first page, and one page more with each call of `more`. A refresh reads all of them again.
 * @template T
 * @param {string} path
 * @param {string} field of the answer
 */
export function listOf(path, field) {
  let wantedRows = pageSize;
  /** @type {Record<string, string | undefined>} */
  let query = {};
  let latest = 0;
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
      wantedRows = pageSize;
      list.rows = undefined;
      return list.refresh();
    },

    more() {
      wantedRows += pageSize;
      return list.refresh();
    },

    async refresh() {
      const request = ++latest;
      try {
        /** @type {T[]} */
        const rows = [];
        /** @type {string | null} */
        let cursor = null;
        do {
          /** @type {Record<string, any>} */
          const answer = await api(
            `${path}${queryOf({ ...query, cursor, limit: Math.min(mostRows, wantedRows - rows.length) })}`,
          );
          rows.push(...answer[field]);
          cursor = answer.nextCursor;
        } while (typeof cursor === 'string' && rows.length < wantedRows);
        if (request !== latest) return;
        list.rows = rows;
        list.isMore = typeof cursor === 'string';
        list.error = undefined;
      } catch (error) {
        if (request === latest) list.error = /** @type {Error} */ (error);
      }
      draw();
    },
  };
  return list;
}

/** Calls `work` `ms` after the first of several requests. @param {() => void} work @param {number} ms */
export function collected(work, ms) {
  let isPlanned = false;
  return () => {
    if (isPlanned) return;
    isPlanned = true;
    window.setTimeout(() => {
      isPlanned = false;
      work();
    }, ms);
  };
}

/** Calls `work` `ms` after the last request. @param {() => void} work @param {number} ms */
export function later(work, ms) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(work, ms);
  };
}
