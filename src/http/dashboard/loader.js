import { draw } from './state.js';

/**
 * Loads one thing of the API, for a view: the last answer, and why the last request failed. An answer for an earlier id is ignored.
 * @template T
 * @param {(id: string) => Promise<T>} request
 * @param {(found: T, before: T | undefined) => void} [then] called with each answer, and the one before it
 */
export function loaderOf(request, then = () => {}) {
  const loader = {
    id: '',
    /** @type {T | undefined} */
    found: undefined,
    /** @type {Error | undefined} */
    error: undefined,

    /** @param {string} id */
    open(id) {
      if (id !== loader.id) loader.found = undefined;
      loader.id = id;
      return loader.refresh();
    },

    async refresh() {
      const { id } = loader;
      try {
        const found = await request(id);
        if (id !== loader.id) return;
        const before = loader.found;
        loader.found = found;
        loader.error = undefined;
        then(found, before);
      } catch (error) {
        if (id !== loader.id) return;
        loader.error = /** @type {Error} */ (error);
      }
      draw();
    },
  };
  return loader;
}
