import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const page = readFileSync('docs/reference/log-events.md', 'utf8');
/** Each event has a line with its meaning, or is in the list of its level. */
const listed = [
  ...page.matchAll(/^- `(\w+)` (`\w+\.\w+`): /gm),
  ...page.matchAll(/^- `(\w+)`: (`\w+\.\w+`(?:,\s+`\w+\.\w+`)*)$/gm),
].flatMap(([, level, events]) => [...events!.matchAll(/`([^`]+)`/g)].map(([, event]) => `${level} ${event}`));

/** From each call of a log to the next one. The type `Log` lets no call be without an event. */
const calls = globSync('src/**/*.ts', { exclude: ['src/library/**'] }).flatMap((path) =>
  readFileSync(path, 'utf8')
    .split(/\blog\??(?=\.(?:fatal|error|warn|info|debug|trace)\(|\[)/)
    .slice(1),
);

const lines = calls.map((call) => {
  const [, level, event, message] =
    /^(?:\.|\[\w+ \? ')(\w+)(?:' : '\w+'\])?\(\s*\{\s*event: '([^']+)'[\s\S]*?\},\s*'([^'\n]+)',?\s*\)/.exec(call) ??
    [];
  return event ? `${level} ${event}: ${message}` : call.slice(0, 200);
});

test('docs/reference/log-events.md lists every log event with its level, and no other', () => {
  expect([...new Set(lines.map((line) => line.split(': ')[0]!))].sort()).toEqual(listed.toSorted());
});

test('each log event has one level and one message, and is named noun.past_participle', () => {
  const events = [...new Set(lines)].map((line) => line.split(/[ :]/)[1]!);
  expect(new Set(events).size).toBe(events.length);
  for (const event of events) expect(event).toMatch(/^[a-z]+(_[a-z]+)*\.[a-z]+(_[a-z]+)*$/);
});
