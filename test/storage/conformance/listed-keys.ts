import { describe, expect, test } from 'vitest';
import { type Ground, keysIn, readFrom } from './ground.ts';

const strangeKeys = [
  'with space/and more.jpg',
  ' leading and trailing ',
  'Überstraße/ñandú/日本語.mp4',
  'emoji 🎬👩‍👩‍👧.mov',
  '100% %20 %2F.txt',
  'a+b&c=d;e,f.txt',
  'what?.txt',
  '#1.txt',
  `"double" 'single' \`back\`.txt`,
  '<xml>&amp;</xml>.txt',
  '(a)[b]{c}!$*@:~^|.txt',
  'back\\slash',
  '.hidden/.file',
  'dots../...txt',
  '_/_mirror_',
  'a'.repeat(200),
];

const names = ['a', 'a b', 'a-b', 'a.b', 'a/b', 'a/b/c', 'a0', 'aa', 'B', 'b', 'z', 'ä', 'é', '\ufb01', '𐍈', '🎬'];

/** The guarantees of keys, and of the lists of them. */
export function listedKeys(open: () => Ground): void {
  describe('keys', () => {
    possibleKeys(open);
    listsOfKeys(open);
  });

  test('a folder is purged completely, also if it has more than a thousand objects', {
    tags: 'slow',
  }, async () => {
    const { storage } = open();
    expect(await Array.fromAsync(storage.purge('many/'))).toHaveLength(1100);
    expect(await keysIn(storage, 'many/')).toEqual([]);
  });
}

function possibleKeys(open: () => Ground): void {
  test.each(strangeKeys)('an object can have the key %s', async (key) => {
    const { storage } = open();
    const at = `strange/${key}`;
    await storage.put(at, key);
    expect((await readFrom(storage, at))?.toString()).toBe(key);
    expect(await storage.head(at)).toMatchObject({ key: at, bytes: Buffer.byteLength(key) });
    expect(await keysIn(storage, at)).toEqual([at]);
    await storage.remove(at);
    expect(await storage.head(at)).toBeUndefined();
  });
}

function listsOfKeys(open: () => Ground): void {
  test('keys are listed by prefix, in the order of their UTF-8 bytes', async () => {
    const { storage } = open();
    const all = names.map((name) => `order/${name === 'a' ? 'a!' : name === 'a/b' ? 'a/b!' : name}`);
    for (const key of all) await storage.put(key, '');
    const ordered = all.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    expect(await keysIn(storage, 'order/')).toEqual(ordered);
    expect(await keysIn(storage, 'order')).toEqual(ordered);
    for (const prefix of ['order/a', 'order/a/', 'order/a/b', 'order/a/b/c', 'order/ä', 'order/x', 'rder/']) {
      expect(await keysIn(storage, prefix)).toEqual(ordered.filter((key) => key.startsWith(prefix)));
    }
  });

  test('keys are listed completely, also if there are more than a thousand', {
    tags: 'slow',
  }, async () => {
    const { storage } = open();
    const all = Array.from({ length: 1100 }, (_, i) => `many/${String(i % 3)}/${String(i).padStart(5, '0')}`);
    const queue = [...all];
    const worker = async () => {
      for (let key = queue.pop(); key !== undefined; key = queue.pop()) await storage.put(key, key);
    };
    await Promise.all(Array.from({ length: 16 }, worker));
    expect(await keysIn(storage, 'many/')).toEqual(all.toSorted());
    expect(await keysIn(storage, 'many/1/')).toEqual(all.toSorted().filter((key) => key.startsWith('many/1/')));
    const listed = await Array.fromAsync(storage.list('many/0'));
    expect(listed.every((object) => object.bytes === object.key.length && object.modified instanceof Date)).toBe(true);
  });

  test('a list of keys that is left early frees its resources', { tags: 'slow' }, async () => {
    const { storage } = open();
    for await (const object of storage.list('many/')) {
      expect(object.key).toBe('many/0/00000');
      break;
    }
  });
}
