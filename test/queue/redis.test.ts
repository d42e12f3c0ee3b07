import { expect, test } from 'vitest';
import { moved } from '../../src/queue/redis.ts';

test.each([
  ["READONLY You can't write against a read only replica.", 2],
  ["ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write against a read only replica.", 2],
  ['ERR unknown command', false],
])('after the answer "%s", Redis is connected again: %s', (message, expected) => {
  expect(moved(new Error(message))).toBe(expected);
});
