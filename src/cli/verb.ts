import type { Command } from 'commander';
import type { CopyConfig } from '../config/config.ts';
import type { Log } from '../floor/log.ts';
import type { ApiClient } from './client.ts';
import type { DemoOptions } from './verbs/demo.ts';
import type { LibraryVerbOptions } from './verbs/library.ts';
import type { Credentials } from './verbs/login.ts';

/** The functions that `command.ts` passes to the verbs. */
export interface Verbs {
  start(role: 'all' | 'web' | 'worker', options: { json?: boolean }): Promise<void>;
  demo(options: DemoOptions): Promise<void>;
  library(options: LibraryVerbOptions): Promise<void>;
  doctor(options: { json?: boolean }): Promise<void>;
  /** For a verb that works on the bucket without a running asset-mirror. Without `database`, it needs no setting of it. */
  offline(needs?: { database: boolean }): Promise<{ config: CopyConfig; log: Log }>;
  api(): Promise<ApiClient>;
  credentials(): Promise<Credentials>;
}

/** The end of the help of a verb. */
export const examples = (...lines: string[]) =>
  `\n${lines.length > 1 ? 'Examples' : 'Example'}:\n${lines.map((line) => `  ${line}`).join('\n')}`;

/** Adds a group of verbs. */
export type NewGroup = (name: string, summary: string) => Command;

/** Adds verbs to a group. */
export const verbsOf = (group: Command) => (name: string, text: string, example: string) =>
  group
    .command(name)
    .description(text)
    .option('--json', 'print JSON')
    .addHelpText('after', examples(`asset-mirror ${group.name()} ${example}`));

/** Adds a verb. Its own help says `more` below the summary, and ends with the examples. */
export type NewVerb = (name: string, summary: string, example: string | string[], more?: string) => Command;

/** The action of a verb that calls the API. If `run` returns a number, it is that of the failures. */
export const withApi =
  <Args extends unknown[]>(api: Verbs['api'], run: (api: ApiClient, ...args: Args) => Promise<unknown>) =>
  async (...args: Args): Promise<void> => {
    const result = await run(await api(), ...args);
    if (typeof result === 'number') setExitCode(result);
  };

/** Sets exit code 1 if anything failed or differs, unless a verb has set another one. */
export function setExitCode(failures: number): void {
  if (failures > 0) process.exitCode ??= 1;
}
