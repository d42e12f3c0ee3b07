import { RetryLater } from '../errors.ts';
import { HttpError, passing } from '../source/http.ts';

export type OutageDetector = ReturnType<typeof createOutageDetector>;

/** If this many different assets in a row fail at the same place, the fault is the place's. */
const enough = 5;
/**
 * The same holds if the API has not answered at all for this long: there may be too few assets to count. Not for links,
 * for there may be only one asset that asks for them.
 */
const silentMs = 180_000;

type Place = 'api' | 'links';

/**
 * Tells faults of one asset from outages of the service: of the API or of the links, for all connections or for one. During
 * an outage no asset spends attempts.
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
          // A link is renewed at the API. An error from there is counted there only.
          if (!placesOf.has(error as object)) placesOf.set(error as object, places);
        } else if (error instanceof HttpError || (error instanceof RetryLater && error.code === 'asked_to_wait'))
          isAnswered();
        throw error;
      }
    },

    /** Whether this fault of an asset is part of an outage: others meet it too, and nobody gets an answer. */
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
