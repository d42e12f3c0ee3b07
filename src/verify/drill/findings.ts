import { type DrillFailure, type DrillReport, drillFailures, losses } from '../../store/drills/drill-report.ts';
import type { Compared } from '../../store/drills/losses.ts';

const mostExamples = 50;

export class Findings {
  /** Assets that differ because they are just being changed. */
  inProgress = 0;
  readonly examples: DrillReport['loss']['examples'] = [];
  readonly #counts = new Map<DrillFailure, number>();
  #oldest: Date | undefined;

  add(code: DrillFailure, { count = 1, since }: { count?: number | undefined; since?: Date | null } = {}): void {
    this.#counts.set(code, (this.#counts.get(code) ?? 0) + count);
    if (since && losses.has(code) && !(this.#oldest && this.#oldest < since)) this.#oldest = since;
  }

  addExample(code: DrillFailure, { id, key, since }: { id: string; key: string; since: Date }): void {
    if (this.examples.length < mostExamples) this.examples.push({ assetId: id, key, code, since: since.toISOString() });
  }

  addAsset({ code, inProgress, ...asset }: Compared): void {
    if (code === null) return;
    if (inProgress) this.inProgress++;
    else {
      this.add(code, asset);
      this.addExample(code, asset);
    }
  }

  /** Time of the oldest change that would be lost, ISO 8601; null: none. */
  get oldest(): string | null {
    return this.#oldest?.toISOString() ?? null;
  }

  /** In the order of the codes. */
  get failures(): DrillReport['failures'] {
    return drillFailures.map((code) => ({ code, count: this.#counts.get(code) ?? 0 })).filter(({ count }) => count > 0);
  }
}
