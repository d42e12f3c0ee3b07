import fc from 'fast-check';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Store } from '../../src/store/store.ts';
import { compareKeys, expectedObjects, expectedOf, sideBySide } from '../../src/verify/expected-objects.ts';
import { newStore, running } from '../store/records.ts';

async function* each<T>(values: T[], onTake: () => void = () => {}): AsyncGenerator<T> {
  for (const value of values) {
    onTake();
    yield value;
  }
}
const all = async <T>(values: AsyncIterable<T>) => Array.fromAsync(values);

describe('merging two sequences', () => {
  const keys = fc
    .uniqueArray(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 6 }))
    .map((list) => list.sort(compareKeys));

  test('a merge yields each key once, in byte order, with the entries of both sequences', async () => {
    await fc.assert(
      fc.asyncProperty(keys, keys, async (left, right) => {
        const pairs = await all(sideBySide(each(left.map((key) => ({ key }))), each(right.map((key) => ({ key })))));
        expect(pairs.map(({ key }) => key)).toEqual([...new Set([...left, ...right])].sort(compareKeys));
        for (const pair of pairs) {
          expect([pair.expected?.key, pair.listed?.key]).toEqual([
            left.includes(pair.key) ? pair.key : undefined,
            right.includes(pair.key) ? pair.key : undefined,
          ]);
        }
      }),
    );
  });

  test('a merge reads at most one entry ahead', async () => {
    const list = Array.from({ length: 1000 }, (_, n) => ({ key: String(n).padStart(4, '0') }));
    let taken = 0;
    let given = 0;
    for await (const _ of sideBySide(
      each(list, () => taken++),
      each(list),
    )) {
      given++;
      expect(taken - given).toBeLessThanOrEqual(1);
    }
    expect(given).toBe(1000);
  });

  test('a merge sorts in byte order as buckets do, not as JavaScript does', () => {
    expect(['\u{1F600}', '\uFF5E', 'z', 'a/b', 'a-b'].sort(compareKeys)).toEqual([
      'a-b',
      'a/b',
      'z',
      '\uFF5E',
      '\u{1F600}',
    ]);
  });
});

describe('the expected objects', () => {
  let opened: Awaited<ReturnType<typeof newStore>>;
  let store: Store;
  let connectionId: string;
  const keys = [
    // Keys that are prefixes of others, and some that sort differently by letters than by bytes.
    ...[
      'a/f',
      'a/f.',
      'a/f.a',
      'a/f.asset',
      'a/f.asset.json.x',
      'a/f.txt.b',
      'a/f.u',
      'a/F',
      'a/ä',
      'a/\uFF5E',
      'a/\u{1F600}',
    ],
    ...Array.from({ length: 400 }, (_, n) => `b/${n}/file ${n}.bin`),
  ];
  beforeAll(async () => {
    opened = await newStore();
    store = opened.store;
    ({ connectionId } = await running(store, 'acme'));
    const client = new pg.Client({ connectionString: opened.url });
    await client.connect();
    for (const [n, key] of keys.entries()) {
      const media = { key, bytes: n, variant: 'original', checksums: { crc32: '00000000' }, etag: null, version: '1' };
      await client.query(
        `INSERT INTO assets (id, connection_id, company_id, listed, state, media, record_key, transcript_keys, sidecar_files)
         VALUES ($1, $2, 'acme', '{}', 'mirrored', $3, $4, $5, $6)`,
        [
          `asset ${n}`,
          connectionId,
          JSON.stringify(media),
          `${key}.asset.json`,
          JSON.stringify(n % 2 ? [`${key}.vtt`, `${key}.txt`] : null),
          JSON.stringify({ [`${key}.asset.json`]: { bytes: 1, etag: null, crc32: '00000001' } }),
        ],
      );
    }
    await client.end();
  });
  afterAll(async () => {
    await opened?.close();
  });

  /** The store, and the page sizes of its reads. */
  function watched() {
    const asked: number[] = [];
    const contents = {
      ...store.contents,
      async byKey(page: Parameters<Store['contents']['byKey']>[0]) {
        const rows = await store.contents.byKey(page);
        asked.push(rows.length);
        return rows;
      },
    };
    return { store: { ...store, contents }, asked };
  }
  const everything = async () => {
    const rows = await store.contents.byId({ after: '', limit: 10_000 });
    return rows
      .flatMap(expectedOf)
      .map(({ key }) => key)
      .sort(compareKeys);
  };

  test('expected objects are complete and in byte order with any page size', { tags: 'slow' }, async () => {
    const expected = await everything();
    expect(expected.length).toBe(keys.length * 2 + Math.floor(keys.length / 2) * 2);
    for (const pageSize of [1, 2, 7, 1000]) {
      const found = await all(expectedObjects(store, { after: '', pageSize }));
      expect(found.map(({ key }) => key)).toEqual(expected);
    }
  });

  test('expected objects continue after any key, also between a media file and its sidecars', {
    tags: 'slow',
  }, async () => {
    const expected = await everything();
    for (const [index, after] of expected.entries()) {
      if (index > 40 && index % 97 !== 0) continue;
      const found = await all(expectedObjects(store, { after, pageSize: 50 }));
      expect(
        found.map(({ key }) => key),
        `behind ${after}`,
      ).toEqual(expected.slice(index + 1));
    }
  });

  test('expected objects read one page of rows at a time, and the next one when it is used up', async () => {
    const { store: watching, asked } = watched();
    let given = 0;
    for await (const _ of expectedObjects(watching as Store, { after: '', pageSize: 20 })) {
      given++;
      const rows = asked.reduce((sum, count) => sum + count, 0);
      // At least two objects of each row; the buffered keys are prefixes of one another.
      expect(rows - given / 2).toBeLessThanOrEqual(20 + 11);
    }
    expect(Math.max(...asked)).toBe(20);
    expect(asked.length).toBe(Math.floor(keys.length / 20) + 1);
  });

  test('expected objects of a leased asset are moving, by the clock of the database', async () => {
    const client = new pg.Client({ connectionString: opened.url });
    await client.connect();
    const leasedFor = async (seconds: number) => {
      const until = `now() + ${seconds} * interval '1 s'`;
      await client.query(`UPDATE assets SET lease_until = ${until} WHERE id = 'asset 0'`);
      return (await store.contents.get('asset 0'))!.isMoving;
    };
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 600_000 });
    try {
      expect(await leasedFor(60)).toBe(true);
      expect(await leasedFor(-1)).toBe(false);
      expect((await store.contents.get('asset 1'))!.isMoving).toBe(false);
    } finally {
      vi.useRealTimers();
      await client.end();
    }
  });

  test('expected objects have size, ETag and checksum as they were stored', async () => {
    const [first] = await all(expectedObjects(store, { after: '', pageSize: 50 }));
    expect(first).toMatchObject({ key: 'a/F', kind: 'media', bytes: 7, etag: undefined, crc32: '00000000' });
  });
});
