import { RetryLater } from '../errors.ts';
import { HttpError, passing } from '../source/http.ts';

export type Reach = ReturnType<typeof createReach>;

/** So many different assets in a row that meet a fault in the same place: then it is the place's. */
const enough = 5;

/**
 * Tells trouble with one asset from trouble with the service: whether what is asked for them is answered at all, in the
 * API and at the links, each for itself. While nothing is, no asset spends attempts on it.
 */
export function createReach() {
  const troubled = { api: new Set<string>(), links: new Set<string>() };
  const places = new WeakMap<object, keyof typeof troubled>();

  return {
    async watch<T>(place: keyof typeof troubled, ask: () => Promise<T>): Promise<T> {
      try {
        const answer = await ask();
        troubled[place].clear();
        return answer;
      } catch (error) {
        if (passing(error)) {
          // A link is renewed at the API: what fails there has failed there.
          if (!places.has(error as object)) places.set(error as object, place);
        } else if (error instanceof HttpError || error instanceof RetryLater) {
          troubled[place].clear();
        }
        throw error;
      }
    },

    /** Whether others meet this fault of an asset, too, and nobody an answer. */
    isGeneral(error: unknown, assetId: string): boolean {
      const place = places.get(error as object);
      if (place === undefined) return false;
      const assets = troubled[place];
      if (assets.size < enough) assets.add(assetId);
      return assets.size === enough;
    },
  };
}
