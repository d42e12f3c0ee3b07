import { RetryLater } from '../errors.ts';
import { HttpError, passing } from '../source/http.ts';

export type OutageDetector = ReturnType<typeof createOutageDetector>;

/** So many different assets in a row that meet a fault in the same place: then it is the place's. */
const enough = 5;
/**
 * Nor is it the asset's when the API has answered nobody for so long: there may be too few assets to tell by. Listings ask
 * there, too; of a link there may be no other witness.
 */
const silentMs = 180_000;

type Place = 'api' | 'links';

/**
 * Tells trouble with one asset from trouble with the service: whether what is asked for them is answered at all, in the
 * API and at the links, each for itself, and for a connection by itself, too: the service may be there for others only.
 * While nothing is answered, no asset spends attempts on it.
 */
export function createOutageDetector() {
  const troubled = new Map<string, Set<string>>();
  const silentSince = new Map<string, number>();
  const placesOf = new WeakMap<object, string[]>();

  return {
    async watch<T>(place: Place, ask: () => Promise<T>, connectionId?: string): Promise<T> {
      const places = connectionId === undefined ? [place] : [place, `${place} ${connectionId}`];
      const isAnswered = () => {
        for (const answering of places) {
          troubled.delete(answering);
          silentSince.delete(answering);
        }
      };
      try {
        const answer = await ask();
        isAnswered();
        return answer;
      } catch (error) {
        if (passing(error)) {
          for (const silent of place === 'api' ? places : []) {
            if (!silentSince.has(silent)) silentSince.set(silent, performance.now());
          }
          // A link is renewed at the API: what fails there has failed there.
          if (!placesOf.has(error as object)) placesOf.set(error as object, places);
        } else if (error instanceof HttpError || (error instanceof RetryLater && error.asked)) isAnswered();
        throw error;
      }
    },

    /** Whether others meet this fault of an asset, too, and nobody an answer. */
    isGeneral(error: unknown, assetId: string): boolean {
      return (placesOf.get(error as object) ?? [])
        .map((place) => {
          const assets = troubled.get(place) ?? new Set();
          troubled.set(place, assets);
          if (assets.size < enough) assets.add(assetId);
          return (
            assets.size === enough || performance.now() - (silentSince.get(place) ?? performance.now()) >= silentMs
          );
        })
        .includes(true);
    },
  };
}
