import { Disconnected, Rejected, RetryLater, reasonOf } from '../errors.ts';
import { HttpError } from '../source/http.ts';
import { LeaseLost } from '../store/syncs/lease.ts';

/** Problems that did not stop a run: the first five, and the number of others. */
export class Problems {
  fatal = false;
  #texts: string[] = [];
  #more = 0;

  add(text: string, options: { fatal: boolean }): void {
    if (this.#texts.length < 5) this.#texts.push(text);
    else this.#more++;
    this.fatal ||= options.fatal;
  }

  get text(): string | null {
    if (this.#texts.length === 0) return null;
    return this.#texts.join('; ') + (this.#more > 0 ? `; and ${this.#more} more` : '');
  }
}

/** An error after at least one page of a listing: the next run resumes at its cursor. */
export class ListingInterrupted extends Error {
  override readonly name = 'ListingInterrupted';
}

/** @throws ListingInterrupted if resuming may help; otherwise `error`: without a page of progress, or if the answer would be the same */
export function interruptListing(error: unknown, pages: number): never {
  const final = error instanceof Rejected || (error instanceof HttpError && error.status < 500);
  if (pages === 0 || final || concernsConnection(error)) throw error;
  throw new ListingInterrupted(reasonOf(error), { cause: error });
}

const concernsConnection = (error: unknown) =>
  error instanceof LeaseLost || error instanceof Disconnected || error instanceof RetryLater;

/** Whether an error stops the whole run, and not just one company or asset. */
export const stopsRun = (error: unknown, signal: AbortSignal) =>
  signal.aborted || error instanceof ListingInterrupted || concernsConnection(error);
