import { liveLine } from './live.ts';
import { harmless, paint, print, printJson } from './output.ts';
import { stopSignal } from './stop-signal.ts';

const redrawMs = 100;

/** Maximum problems kept for JSON. */
const mostProblems = 1000;

interface Report<Progress> {
  start(title: string): void;
  /** Called with one sentence for each problem. */
  problem(line: string): void;
  progress(progress: Readonly<Progress>): void;
}

/**
 * Runs the work of a verb that needs no service: a line on a terminal shows its progress, each problem is printed, and at last
 * a summary. With `json`, only the result is printed, with the problems. Ctrl-C ends the work: exit code 130.
 */
export async function runReported<Progress extends { total: unknown }>(
  work: (report: Report<Progress>, stop: AbortSignal) => Promise<Progress>,
  options: {
    json: boolean;
    /** The state before the work begins. */
    initial: Progress;
    /** The line that shows the progress. `ms`: time since the work began. */
    lineOf: (progress: Readonly<Progress>, ms: number) => string;
    summaryOf: (progress: Readonly<Progress>, end: { interrupted: boolean; ms: number }) => string;
  },
): Promise<Readonly<Progress>> {
  const { json } = options;
  const stop = stopSignal();
  const started = performance.now();
  const msSoFar = () => performance.now() - started;
  const live = liveLine({ silent: json || !process.stdout.isTTY });
  const redraw = () => live.show(options.lineOf(result, msSoFar()));
  let redrawing: NodeJS.Timeout | undefined;
  let result: Readonly<Progress> = options.initial;
  let interrupted = false;
  const problems: string[] = [];
  let moreProblems = 0;
  const report: Report<Progress> = {
    start(title) {
      if (json) return;
      print(title);
      redrawing = setInterval(redraw, redrawMs);
    },
    problem(line) {
      if (json) {
        if (problems.length < mostProblems) problems.push(line);
        else moreProblems++;
        return;
      }
      live.print(`  ${paint('yellow', '!')} ${harmless(line)}`);
    },
    progress(now) {
      result = now;
    },
  };
  try {
    result = await work(report, stop);
  } catch (error) {
    if (!stop.aborted) throw error;
    interrupted = true;
    process.exitCode = 130;
  } finally {
    clearInterval(redrawing);
    live.end();
  }
  const ms = msSoFar();
  const { total = null } = result;
  const ending = interrupted && { interrupted };
  if (json) printJson({ ...ending, ...result, total, seconds: ms / 1000, problems, moreProblems });
  else {
    const lead = interrupted ? `${paint('yellow', 'Interrupted.')} ` : '';
    print(`\n${lead}${options.summaryOf(result, { interrupted, ms })}`);
  }
  return result;
}
