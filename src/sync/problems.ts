import { Disconnected, LeaseLost, NamedError, Rejected, RetryLater, reasonOf } from '../floor/errors.ts';
import { HttpError } from '../source/http.ts';

/** The first five texts, and the number of others. */
class FirstTexts {
  #texts: string[] = [];
  #more = 0;

  add(text: string): void {
    if (this.#texts.length < 5) this.#texts.push(text);
    else this.#more++;
  }

  get text(): string | null {
    if (this.#texts.length === 0) return null;
    return this.#texts.join('; ') + (this.#more > 0 ? `; and ${this.#more} more` : '');
  }
}

/** Problems that did not stop a run. If one of them `failsRun`, the run goes on to its end and then counts as failed. */
export class Problems {
  failsRun = false;
  #problems = new FirstTexts();
  #held = new FirstTexts();

  add(text: string, options: { failsRun: boolean }): void {
    this.#problems.add(text);
    this.failsRun ||= options.failsRun;
  }

  /** Changes that an operator must accept first. */
  addHeld(text: string): void {
    this.#held.add(text);
  }

  get text(): string | null {
    return this.#problems.text;
  }

  get held(): string | null {
    return this.#held.text;
  }
}

/** An error after at least one page of a listing: the next run resumes at its cursor. */
export class ListingInterrupted extends NamedError {}

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
