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
  const page = readFileSync('docs/reference/cli.md', 'utf8').split('\n## ')[0]!;
  const listed = [...page.matchAll(/^- ((?:`[\w -]+`(?:, )?)+): /gm)].flatMap(([, names]) =>
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

test.each(['README.md', 'SECURITY.md', 'src/library/README.md', ...globSync('docs/**/*.md')])(
  'every command in %s has a verb and options that exist',
  (page) => {
    const unknown = commandsIn(readFileSync(page, 'utf8')).filter((command) => {
      const words = command.split(/ +/);
      const verb = verbs.get(words.slice(0, 2).join(' ')) ?? verbs.get(words[0]!);
      const flags = verb?.options.map(({ long }) => long).concat('--help');
      return !flags || [...command.matchAll(/--[\w-]+/g)].some(([flag]) => !flags.includes(flag));
    });
    expect(unknown).toEqual([]);
  },
);
