import { expect, test } from 'vitest';
import { createWay } from '../../src/jobs/way.ts';

/** What a way says at the end of so many pages, each with a cursor of its own. */
function walk(pages: number, idsOf: (page: number) => string[]) {
  const way = createWay();
  const cursor = (page: number) => (page === 0 ? undefined : `cursor ${page}`);
  for (let page = 0; page < pages; page++) {
    const { next } = way.behind(cursor(page), { ids: idsOf(page), nextCursor: cursor(page + 1) });
    expect(next).toBe(cursor(page + 1));
  }
}

test('pages without assets are passed, however many they are in all', () => {
  walk(5000, (page) => (page % 500 === 0 ? [`asset ${page}`] : []));
});

test.each([
  ['nothing', []],
  ['the same', ['one', 'two']],
])('a thousand pages of %s in a row are a listing without end', (_, ids) => {
  walk(1000, () => ids);
  expect(() => walk(1002, () => ids)).toThrow('the listing goes on without end');
});
