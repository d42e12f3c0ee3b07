import { draw } from './state.js';

/**
 * One thing of the API, for a view: the last answer, and why the last request failed. An answer for an earlier id is ignored.
 * @template T
 * @param {(id: string) => Promise<T>} request
 * @param {(found: T, before: T | undefined) => void} [then] called with each answer, and the one before it
 */
export function recordOf(request, then = () => {}) {
  const record = {
    id: '',
    /** @type {T | undefined} */
    found: undefined,
    /** @type {Error | undefined} */
    error: undefined,

    /** @param {string} id */
    open(id) {
      if (id !== record.id) record.found = undefined;
      record.id = id;
      return record.refresh();
    },

    async refresh() {
      const { id } = record;
      try {
        const found = await request(id);
        if (id !== record.id) return;
        const before = record.found;
        record.found = found;
        record.error = undefined;
        then(found, before);
      } catch (error) {
        if (id !== record.id) return;
        record.error = /** @type {Error} */ (error);
      }
      draw();
    },
  };
  return record;
}
