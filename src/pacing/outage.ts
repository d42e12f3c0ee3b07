import { RetryLater } from '../floor/errors.ts';
import { HttpError, isTemporary } from '../source/http.ts';

export type OutageDetector = ReturnType<typeof createOutageDetector>;

/** If this many different assets in a row fail at the same target, it is an outage. */
const enough = 5;
/**
 * It is also an outage if the API has not answered at all for this long: there may be too few assets to count. Not for links,
 * because all requests for links may come from one asset.
 */
const silentMs = 180_000;

/** What a request goes to. */
type Target = 'api' | 'links';

/**
 * Distinguishes errors of one asset from outages of the library: of the API or of the links, for all connections or for one.
 * During an outage no asset spends attempts.
 */
export function createOutageDetector() {
  const failingAssets = new Map<string, Set<string>>();
  const silentSince = new Map<string, number>();
  const targetsOf = new WeakMap<object, string[]>();

  return {
    async watch<T>(target: Target, request: () => Promise<T>, connectionId?: string): Promise<T> {
      const targets = connectionId === undefined ? [target] : [target, `${target} ${connectionId}`];
      const markAnswered = () => {
        for (const answering of targets) {
          failingAssets.delete(answering);
          silentSince.delete(answering);
        }
      };
      try {
        const answer = await request();
        markAnswered();
        return answer;
      } catch (error) {
        if (isTemporary(error)) {
          for (const silent of target === 'api' ? targets : []) {
            if (!silentSince.has(silent)) silentSince.set(silent, performance.now());
          }
          // A link is renewed by a request to the API, whose errors count for the API only.
          if (!targetsOf.has(error as object)) targetsOf.set(error as object, targets);
        } else if (error instanceof HttpError || (error instanceof RetryLater && error.reason.code === 'asked_to_wait'))
          markAnswered();
        throw error;
      }
    },

    /** Whether this error is part of an outage: many assets fail and none gets an answer, or there was no answer for long. */
    recordFailure(error: unknown, assetId: string): boolean {
      let isOutage = false;
      for (const target of targetsOf.get(error as object) ?? []) {
        const assets = failingAssets.get(target) ?? new Set();
        failingAssets.set(target, assets);
        if (assets.size < enough) assets.add(assetId);
        const since = silentSince.get(target);
        const isSilent = since !== undefined && performance.now() - since >= silentMs;
        isOutage ||= isSilent || assets.size === enough;
      }
      return isOutage;
    },
  };
}
