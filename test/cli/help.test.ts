import { describe, expect, test } from 'vitest';
import { program } from '../../src/cli/program.ts';
import { shells } from '../../src/cli/verbs/completion.ts';

describe('commands of operators', () => {
  test('each command has a help text with a description', async () => {
    const app = program({} as never, '1.0.0');
    expect(app.commands.length).toBeGreaterThan(15);
    for (const command of [...app.commands, ...app.commands.flatMap((it) => it.commands)]) {
      const path = command.parent === app ? command.name() : `${command.parent!.name()} ${command.name()}`;
      expect(command.helpInformation(), path).toMatch(new RegExp(`^Usage: asset-mirror ${path}.*\n\n[A-Z][^]*\\.\n`));
      expect(app.helpInformation(), path).toContain(`\n  ${path.split(' ')[0]}`);
    }
    const completion = app.commands.find((command) => command.name() === 'completion')!;
    for (const shell of shells) expect(completion.helpInformation()).toContain(shell);
  });
});
