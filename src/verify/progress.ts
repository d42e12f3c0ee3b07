import { LeaseLost } from '../floor/errors.ts';
import type {
  Verification,
  VerificationCounts,
  VerificationLine,
  VerificationPosition,
} from '../store/database/schema.ts';
import type { Store } from '../store/store.ts';
import { countOf, ignoresForeign, nothingFound } from './counts.ts';
import type { Finding } from './finding.ts';

/** The findings of a verification, and the position where it continues after a crash. Both are saved together. */
export class Progress {
  readonly counts: VerificationCounts;
  position: VerificationPosition;
  readonly #store: Store;
  readonly #run: Verification;
  readonly #owner: string;
  readonly #signal: AbortSignal;

  constructor(store: Store, run: Verification, owner: string, signal: AbortSignal) {
    this.counts = { ...nothingFound, ...run.counts };
    this.position = { ...run.position };
    this.#store = store;
    this.#run = run;
    this.#owner = owner;
    this.#signal = signal;
  }

  /** @throws LeaseLost */
  async save(findings: Finding[], next: VerificationPosition): Promise<void> {
    this.#signal.throwIfAborted();
    const { options } = this.#run;
    const { counts } = this;
    const lines: VerificationLine[] = [];
    for (const line of findings) {
      if (line === 'moving') {
        counts.moving++;
        continue;
      }
      counts[countOf(line)]++;
      if (line.mark === '=' ? options.all : line.mark !== '+' || !ignoresForeign(options)) lines.push(line);
    }
    counts.lines += lines.length;
    const { since, failures } = this.position;
    // A new phase is no progress yet.
    const isAhead = next.key !== undefined || next.assetId !== undefined;
    const position = {
      ...(since !== undefined && { since }),
      ...(failures !== undefined && !isAhead && { failures }),
      ...next,
    };
    this.position = position;
    if (!(await this.#store.verifications.save(this.#run.id, this.#owner, { lines, counts, position }))) {
      throw new LeaseLost(`the verification ${this.#run.id}`);
    }
  }
}
