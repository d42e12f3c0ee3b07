import { Disconnected, LeaseLost, NamedError, Rejected, RetryLater, reasonOf } from '../floor/errors.ts';
import type { Held } from '../floor/held-changes.ts';
import type { ListingDoubt, Reason } from '../floor/reason-codes.ts';
import { combineReasons } from '../floor/reasons.ts';
import { HttpError } from '../source/http.ts';
import type { CompanyPosition } from '../store/database/schema.ts';

/** The first five reasons, and the number of others. */
class FirstReasons {
  #reasons: Reason[] = [];
  #more = 0;

  add(reason: Reason): void {
    if (this.#reasons.length < 5) this.#reasons.push(reason);
    else this.#more++;
  }

  get combined(): Reason | null {
    return combineReasons(this.#reasons, this.#more);
  }
}

/** Problems that did not stop a run. If one of them `failsRun`, the run goes on to its end and then counts as failed. */
export class Problems {
  failsRun = false;
  #problems = new FirstReasons();
  #held = new FirstReasons();

  add(reason: Reason, options: { failsRun: boolean }): void {
    this.#problems.add(reason);
    this.failsRun ||= options.failsRun;
  }

  /** The listing of a company may have ended too early. */
  addDoubt(companyId: string, cursor: ListingDoubt): void {
    this.add({ code: 'listing_incomplete', companyId, cursor }, { failsRun: false });
  }

  /** Changes that an operator must accept first. */
  addHeld({ kind, count, known, connectionId, companyId }: Held): void {
    this.#held.add({ code: 'changes_held', kind, count, known, connectionId, companyId });
  }

  get found(): Reason | null {
    return this.#problems.combined;
  }

  get held(): Reason | null {
    return this.#held.combined;
  }
}

/** An error after at least one page of a listing: the next run resumes at its cursor. */
export class ListingInterrupted extends NamedError {}

/** How long after its last page an interrupted listing is resumed. Then it fails, so that other companies are listed. */
const resumedForMs = 15 * 60_000;

/** Whether the interrupted listing of a company is worth another try: it had a page lately, and has not begun anew. */
export function isResumable({ recordedAt, restarted }: CompanyPosition): boolean {
  const ageMs = Date.now() - (recordedAt ?? Number.NEGATIVE_INFINITY);
  // The clock of the host that recorded it may have been ahead.
  return !restarted && Math.abs(ageMs) < resumedForMs;
}

/** @throws ListingInterrupted if the listing makes progress and another try may succeed; otherwise `error` itself */
export function interruptListing(error: unknown, makesProgress: boolean): never {
  const final = error instanceof Rejected || (error instanceof HttpError && error.status < 500);
  if (!makesProgress || final || concernsConnection(error)) throw error;
  throw new ListingInterrupted(reasonOf(error), { cause: error });
}

const concernsConnection = (error: unknown) =>
  error instanceof LeaseLost || error instanceof Disconnected || error instanceof RetryLater;

/** Whether an error stops the whole run, and not just one company or asset. */
export const stopsRun = (error: unknown, signal: AbortSignal) => signal.aborted || concernsConnection(error);
