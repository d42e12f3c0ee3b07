import { globSync, readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { program } from '../../src/cli/program.ts';

/** All verbs with their full names, such as `keys rotate`. */
function verbsOf(command: Command, before = ''): [string, Command][] {
  return command.commands.flatMap((verb): [string, Command][] => {
    const name = `${before}${verb.name()}`;
    return verb.commands.length > 0 ? verbsOf(verb, `${name} `) : [[name, verb]];
  });
}
const verbs = new Map(verbsOf(program({} as never, '1.0.0')));

test('docs/reference/cli.md lists every verb, and no other', () => {
  const page = readFileSync('docs/reference/cli.md', 'utf8');
  const listed = [...page.matchAll(/^\| [\w ]* \| ((?:`[\w -]+`(?:, )?)+) +\|/gm)].flatMap(([, names]) =>
    [...names!.matchAll(/`([^`]+)`/g)].map(([, name]) => name!),
  );
  expect(listed.toSorted()).toEqual([...verbs.keys()].toSorted());
});

/** What follows `asset-mirror` in code, up to the end of the command. */
function commandsIn(page: string): string[] {
  const blocks = [...page.matchAll(/```sh\n([\s\S]*?)```/g)].flatMap(([, block]) =>
    [...block!.matchAll(/^.*asset-mirror(?: --)? ([a-z][^\n]*)$/gm)].map(([, rest]) => rest!),
  );
  const inline = [...page.matchAll(/`[^`\n]*asset-mirror(?: --)? ([a-z][^`\n]*)`/g)].map(([, rest]) => rest!);
  return [...blocks, ...inline].map((command) => command.split(/ *#| \|/)[0]!.trim());
}

const pages = ['README.md', 'SECURITY.md', 'src/library/README.md', ...globSync('docs/**/*.md')];
const commands = pages.flatMap((page) => commandsIn(readFileSync(page, 'utf8')).map((command) => ({ page, command })));

test.each(commands)('$page: asset-mirror $command', ({ command }) => {
  const words = command.split(/ +/);
  const name = [words.slice(0, 2).join(' '), words[0]!].find((verb) => verbs.has(verb))!;
  expect(name, 'the verb').toBeDefined();
  const { options } = verbs.get(name)!;
  const flags = options.map(({ long }) => long).concat('--help');
  for (const [word] of command.matchAll(/--[\w-]+/g)) expect(flags).toContain(word);
});
