import { createInterface } from 'node:readline/promises';
import { UsageError } from './failures.ts';
import { paint } from './output.ts';

/** Call it before `confirmed`. `what`: such as `this ends …`. @throws UsageError without a terminal, or with --json */
export function requireTerminal(what: string, { json }: { json?: boolean }): void {
  if (!process.stdin.isTTY || !process.stdout.isTTY || json) throw new UsageError(`${what}; add --yes to confirm`);
}

export async function confirmed(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} ${paint('dim', '[y/N]')} `)).trim());
  } finally {
    terminal.close();
  }
}
