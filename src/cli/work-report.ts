import { Presets, SingleBar } from 'cli-progress';
import { harmless, overwrite, paint, print, printJson } from './output.ts';

/** Maximum problems kept for JSON. */
const mostProblems = 1000;

interface Report<Progress> {
  start(title: string): void;
  /** Called with one sentence for each problem. */
  problem(line: string): void;
  progress(progress: Readonly<Progress>): void;
}

/**
 * Runs the work of a verb that needs no service: a bar on a terminal shows its progress, each problem is printed, and at last
 * a summary. With `json`, only the result is printed, with the problems. Ctrl-C ends the work: exit code 130.
 */
export async function runReported<Progress extends { total: unknown }>(
  work: (report: Report<Progress>) => Promise<Progress>,
  options: {
    json: boolean;
    stop: AbortSignal;
    /** The state before the work begins. */
    initial: Progress;
    /** The format of the bar; `facts` gives its length and its values. `ms`: time since the work began. */
    format: string;
    facts: (progress: Readonly<Progress>, ms: number) => { done: number; of: number } & Record<string, unknown>;
    summaryOf: (progress: Readonly<Progress>, end: { interrupted: boolean; ms: number }) => string;
  },
): Promise<Readonly<Progress>> {
  const { json, stop, format, facts } = options;
  const started = performance.now();
  const msSoFar = () => performance.now() - started;
  const bar = new SingleBar({ format, hideCursor: true, barsize: 16, linewrap: false }, Presets.rect);
  const shown = !json && process.stdout.isTTY === true;
  let result: Readonly<Progress> = options.initial;
  let interrupted = false;
  const problems: string[] = [];
  let moreProblems = 0;
  const report: Report<Progress> = {
    start(title) {
      if (json) return;
      print(title);
      if (shown) bar.start(1, 0, facts(result, msSoFar()));
    },
    problem(line) {
      if (json) {
        if (problems.length < mostProblems) problems.push(line);
        else moreProblems++;
        return;
      }
      if (shown) overwrite(process.stdout);
      print(`  ${paint('yellow', '!')} ${harmless(line)}`);
    },
    progress(now) {
      result = now;
      if (!shown) return;
      const { done, of, ...values } = facts(now, msSoFar());
      bar.setTotal(Math.max(of, 1));
      bar.update(done, values);
    },
  };
  try {
    result = await work(report);
  } catch (error) {
    if (!stop.aborted) throw error;
    interrupted = true;
    process.exitCode = 130;
  } finally {
    if (shown) bar.stop();
  }
  const ms = msSoFar();
  const { total = null } = result;
  const ending = interrupted && { interrupted };
  if (json) printJson({ ...ending, ...result, total, seconds: ms / 1000, problems, moreProblems });
  else print(options.summaryOf(result, { interrupted, ms }));
  return result;
}
