import { Presets, SingleBar } from 'cli-progress';
import { harmless, overwrite, paint, print } from './output.ts';

/** Maximum problems kept for JSON. */
const mostProblems = 1000;

interface Report<So> {
  start(title: string): void;
  /** Called with one sentence for each problem. */
  problem(line: string): void;
  progress(so: Readonly<So>): void;
}

/**
 * Runs the work of a verb that needs no service: a bar on a terminal shows its progress, and each problem is printed. With
 * `json`, nothing is printed, and problems are returned. Ctrl-C ends the work: exit code 130.
 */
export async function runReported<So>(
  work: (report: Report<So>) => Promise<So>,
  options: {
    json: boolean;
    stop: AbortSignal;
    /** The state before the work begins. */
    first: So;
    /** Of the bar; `facts` gives its length and its values. */
    format: string;
    facts: (so: Readonly<So>) => { done: number; of: number } & Record<string, unknown>;
  },
): Promise<{ so: Readonly<So>; interrupted: boolean; problems: string[]; moreProblems: number }> {
  const { json, stop, format, facts } = options;
  const bar = new SingleBar({ format, hideCursor: true, barsize: 16, linewrap: false }, Presets.rect);
  const shown = !json && process.stdout.isTTY === true;
  const result = { so: options.first as Readonly<So>, interrupted: false, problems: [] as string[], moreProblems: 0 };
  const report: Report<So> = {
    start(title) {
      if (json) return;
      print(title);
      if (shown) bar.start(1, 0, facts(result.so));
    },
    problem(line) {
      if (json && result.problems.length < mostProblems) result.problems.push(line);
      else result.moreProblems++;
      if (json) return;
      if (shown) overwrite(process.stdout);
      print(`  ${paint('yellow', '!')} ${harmless(line)}`);
    },
    progress(so) {
      result.so = so;
      if (!shown) return;
      const { done, of, ...values } = facts(so);
      bar.setTotal(Math.max(of, 1));
      bar.update(done, values);
    },
  };
  try {
    result.so = await work(report);
  } catch (error) {
    if (!stop.aborted) throw error;
    result.interrupted = true;
    process.exitCode = 130;
  } finally {
    if (shown) bar.stop();
  }
  return result;
}
