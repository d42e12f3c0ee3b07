import { expect, test } from 'vitest';
import { followCursors, type Progress } from '../../src/sync/follow-cursors.ts';

/** Follows these pages, each with its own cursor, and returns how many were followed. */
function walk(pages: number, idsOf: (page: number) => string[]): number {
  const cursors = followCursors('list');
  const cursor = (page: number) => (page === 0 ? undefined : `cursor ${page}`);
  for (let page = 0; page < pages; page++) {
    try {
      const { next } = cursors.after(cursor(page), { ids: idsOf(page), nextCursor: cursor(page + 1) });
      expect(next).toBe(cursor(page + 1));
    } catch (error) {
      expect(error).toMatchObject({ message: expect.stringContaining('the listing does not end') });
      return page;
    }
  }
  return pages;
}

const ten = [...'abcdefghij'];

test.each<[string, (page: number) => string[]]>([
  ['no assets', () => []],
  ['the same assets', () => ten],
  ['the same assets in random order', () => ten.toSorted(() => Math.random() - 0.5)],
  ['some of the same assets', () => ten.filter(() => Math.random() < 0.5)],
])('a listing is given up after two hundred pages of %s', (_, idsOf) => {
  const pages = walk(2000, idsOf);
  expect(pages).toBeGreaterThanOrEqual(200);
  expect(pages).toBeLessThan(220);
});

test('a listing may have as many pages without a new asset as it has assets, plus two hundred', () => {
  expect(walk(5000, (page) => [`asset ${page - (page % 2)}`])).toBe(5000);
  expect(walk(5000, (page) => (page % 100 === 0 ? [`asset ${page}`] : []))).toBeLessThan(210);
});

test('a listing of a million assets is followed to the end', { tags: 'slow' }, () => {
  const pages = 10_000;
  expect(walk(pages, (page) => Array.from({ length: 100 }, (_, i) => `asset ${page} ${i}`))).toBe(pages);
});

test('an interrupted listing keeps its count of pages without a new asset when it continues', () => {
  let progress: Progress | undefined;
  let pages = 0;
  const continued = () => {
    const cursors = followCursors('list', progress);
    for (let i = 0; i < 100; i++, pages++) {
      cursors.after(`cursor ${pages}`, {
        ids: ten.toSorted(() => Math.random() - 0.5),
        nextCursor: `cursor ${pages + 1}`,
      });
    }
    progress = cursors.progress();
  };
  expect(() => Array.from({ length: 20 }, continued)).toThrow('the listing does not end');
  expect(pages).toBeGreaterThanOrEqual(200);
  expect(pages).toBeLessThan(400);
});

test('a listing that is often interrupted is followed to its end', () => {
  let progress: Progress | undefined;
  for (let page = 0; page < 5000; page++) {
    const cursors = followCursors('list', progress);
    const ids = Array.from({ length: 10 }, (_, i) => `asset ${page} ${i}`);
    cursors.after(`cursor ${page}`, { ids, nextCursor: `cursor ${page + 1}` });
    progress = cursors.progress();
  }
  expect(progress).toEqual({ assets: 50_000, idlePages: 0 });
});
