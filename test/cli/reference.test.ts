import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { program } from '../../src/cli/program.ts';

const page = readFileSync(new URL('../../docs/reference/cli.md', import.meta.url), 'utf8');
const sections = new Map(
  page.split(/^### /m).map((section) => [section.slice(0, section.indexOf('\n')), section] as const),
);

/** All verbs with their full names, such as `keys rotate`. */
function verbsOf(command: Command, before = ''): { name: string; verb: Command }[] {
  return command.commands.flatMap((verb) => {
    const name = `${before}${verb.name()}`;
    return verb.commands.length > 0 ? verbsOf(verb, `${name} `) : [{ name, verb }];
  });
}
const verbs = verbsOf(program({} as never, '1.0.0'));

test('docs/reference/cli.md has a section for each verb, and no other', () => {
  const [, ...headings] = [...sections.keys()];
  expect(headings.toSorted()).toEqual(verbs.map(({ name }) => name).toSorted());
});

test.each(verbs)('docs/reference/cli.md has the options of $name and an example', ({ name, verb }) => {
  const section = sections.get(name) ?? '';
  const shown = [...section.matchAll(/^\| `(--[^`]+)` /gm)].map(([, flags]) => flags);
  const options = verb.options.map(({ flags }) => flags).filter((flags) => flags !== '--json');
  expect(shown.toSorted()).toEqual(options.toSorted());
  expect(section).toMatch(new RegExp(`\`\`\`sh\n.*asset-mirror ${name}`));
});
