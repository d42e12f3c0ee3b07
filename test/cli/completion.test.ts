import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { program } from '../../src/cli/program.ts';
import { completionScript, shells } from '../../src/cli/verbs/completion.ts';

let directory: string;
const scriptOf = (shell: string) => join(directory, shell);
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'completion-'));
  for (const shell of shells) {
    await writeFile(scriptOf(shell), completionScript(program({} as never, '1.0.0'), shell));
  }
});
afterAll(async () => {
  await rm(directory, { recursive: true });
});

/** The completions that the shell offers after a line. */
const asks: Record<(typeof shells)[number], (line: string) => string[]> = {
  bash(line) {
    const words = line.split(' ');
    const quoted = words.map((word) => `'${word}'`).join(' ');
    return [
      '-uc',
      `source ${scriptOf('bash')}; COMP_WORDS=(${quoted}); COMP_CWORD=${words.length - 1}; _asset_mirror; printf '%s\n' "\${COMPREPLY[@]}"`,
    ];
  },
  zsh: (line) => ['-f', 'test/support/complete.zsh', scriptOf('zsh'), line],
  fish: (line) => ['--no-config', '-c', `source ${scriptOf('fish')}; complete -C '${line}'`],
};

const isThere = (shell: string) => {
  try {
    execFileSync(shell, ['-c', 'true']);
    return true;
  } catch {
    return false;
  }
};

describe.each(shells)('completion in %s', (shell) => {
  const there = isThere(shell);
  test.skipIf(!there).each<[string, string[]]>([
    ['asset-mirror d', ['demo', 'disconnect', 'doctor', 'drill']],
    ['asset-mirror --', ['--help', '--version']],
    ['asset-mirror disconnect --y', ['--yes']],
    ['asset-mirror retry a1 a2 --f', ['--failed']],
    ['asset-mirror assets --state fa', ['failed']],
    ['asset-mirror events --fo', ['--follow']],
    ['asset-mirror keys ro', ['rotate']],
    ['asset-mirror completion z', ['zsh']],
  ])(`a shell completes %s${there ? '' : ` (skipped: ${shell} is not installed)`}`, async (line, offered) => {
    const { stdout } = await promisify(execFile)(shell, asks[shell](line), { timeout: 100_000 });
    // fish adds a description after a tab.
    const words = stdout.split(/\r?\n/).map((word) => word.split('\t')[0]!);
    expect(words.filter(Boolean).sort()).toEqual(offered);
  });
});
