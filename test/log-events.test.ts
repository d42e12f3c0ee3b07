import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

test('docs/reference/log-events.md has only messages that the code writes', () => {
  const page = readFileSync('docs/reference/log-events.md', 'utf8');
  const messages = page
    .split('\n')
    .filter((line) => /^\| `(info|warn|error|fatal)` /.test(line))
    .flatMap((line) => [...line.split('|')[2]!.matchAll(/`([^`]+)`/g)].map(([, message]) => message!));
  expect(messages.length).toBeGreaterThan(40);
  const source = globSync('src/**/*.ts', { exclude: ['src/library/**'] })
    .map((path) => readFileSync(path, 'utf8'))
    .join('\n');
  expect(messages.filter((message) => !source.includes(`'${message}'`))).toEqual([]);
});
