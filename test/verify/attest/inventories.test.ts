// @module-tag slow
import { randomBytes } from 'node:crypto';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { signingKey } from '../../../src/floor/signing.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import {
  attested,
  type Copy,
  change,
  duplicateOf,
  expectProblemsIn,
  first,
  newCopy,
  second,
  sha256,
  verified,
  write,
} from './copies.ts';

describe('a copy in a directory', () => {
  let stage: Stage;
  let copy: Copy;
  let path: string;
  beforeAll(async () => {
    stage = await newStage();
    copy = await newCopy(stage, stage.ground.environment.STORAGE_URL!.slice('file://'.length));
  });
  beforeEach(async () => {
    path = await duplicateOf(copy);
    return () => rm(path, { recursive: true });
  });
  afterAll(() => stage?.close());

  const inventory = (day: string, name: string) => join(path, '_mirror/inventory', day, name);
  const expectProblems = (...problems: string[]) => expectProblemsIn(path, copy, ...problems);

  test('a chain that is altered, has a gap, or is signed by another key is found', async () => {
    const link = (number: number) => join(path, `_mirror/manifests/0000000${number}.json`);
    // The first manifest is proven by the second one, even with another signature.
    await change(link(1), (content) => content.replace(/"signature": ".{8}/, '"signature": "AAAAAAAA'));
    await expectProblems();
    await change(link(1), (content) => content.replace('\\"assets\\": 7', '\\"assets\\": 6'));
    await expectProblems('altered: _mirror/manifests/00000001.json', `extra: _mirror/inventory/${first}/`);
    await rm(link(1));
    await expectProblems('missing: _mirror/manifests/00000001.json', `extra: _mirror/inventory/${first}/`);
    const other = signingKey(randomBytes(32));
    expect((await attested(path, other.keyId)).so.problems).toBeGreaterThan(0);
    expect((await verified(path, other.keyId)).code).toBe(1);
  });

  test('a manifest that is put in the place of another one is found, and so is a gap that is hidden by new numbers', async () => {
    const link = (number: number) => join(path, `_mirror/manifests/0000000${number}.json`);
    const last = await readFile(link(2));
    // Both are signed by the trusted key.
    await writeFile(link(2), await readFile(link(1)));
    await expectProblems(
      `altered after ${first}: _mirror/manifests/00000002.json`,
      `extra: _mirror/inventory/${second}/`,
    );
    await writeFile(link(1), last);
    await rm(link(2));
    await expectProblems(
      'altered: _mirror/manifests/00000001.json',
      `extra: _mirror/inventory/${first}/`,
      `extra: _mirror/inventory/${second}/`,
      'missing: an intact signed inventory',
    );
  });

  test('objects of any other name or form among manifests and keys do no harm', async () => {
    await writeFile(join(path, '_mirror/manifests/x.json'), 'x');
    await writeFile(join(path, '_mirror/keys/x.json'), '[]');
    await writeFile(join(path, `_mirror/keys/${sha256('')}.json`), JSON.stringify({ keyId: sha256(''), publicKey: 5 }));
    await expectProblems();
    await writeFile(join(path, '_mirror/manifests/99999999.json'), '{"manifest":{},"keyId":5,"signature":{}}');
    await expectProblems(
      `altered after ${second}: _mirror/manifests/99999999.json`,
      `missing after ${second}: _mirror/manifests/00000003.json to _mirror/manifests/99999998.json`,
    );
  });

  test('a key that only begins like the trusted one is not trusted', async () => {
    const forged = signingKey(randomBytes(32));
    const key = join(path, `_mirror/keys/${copy.key.keyId}.json`);
    const { publicKey } = JSON.parse(await readFile(key, 'utf8'));
    const both = `${publicKey.split('\n')[1]}\n${forged.publicKey}`;
    await writeFile(key, JSON.stringify({ version: 1, keyId: copy.key.keyId, publicKey: both, signedBy: null }));
    for (const number of [1, 2]) {
      const file = join(path, `_mirror/manifests/0000000${number}.json`);
      const { manifest } = JSON.parse(await readFile(file, 'utf8'));
      const envelope = { manifest, keyId: copy.key.keyId, signature: forged.sign(manifest) };
      await writeFile(file, JSON.stringify(envelope));
    }
    await expectProblems(
      'altered: _mirror/manifests/00000001.json',
      'altered: _mirror/manifests/00000002.json',
      `extra: _mirror/inventory/${first}/`,
      `extra: _mirror/inventory/${second}/`,
      `missing: _mirror/keys/${copy.key.keyId}.json`,
      'missing: an intact signed inventory',
    );
  });

  test('an asset may leave an inventory if the one that says why was deleted', async () => {
    await rm(inventory(first, 'SHA256SUMS'));
    await expectProblems();
  });

  test('an inventory that is not complete is missing', async () => {
    await rm(inventory(second, 'SHA256SUMS'));
    const { so, problems } = await attested(path, copy.key.keyId);
    expect(problems).toEqual([`missing after ${second}: _mirror/inventory/${second}/`]);
    expect(so.day).toBe(first);
    expect((await verified(path, copy.key.keyId)).problems).toEqual(problems);
  });

  test('past inventories may be deleted, but not the last one', async () => {
    await rm(join(path, '_mirror/inventory', first), { recursive: true });
    expect(await expectProblems()).toMatchObject({ manifests: 2, days: 1 });
    await rm(join(path, '_mirror/inventory', second), { recursive: true });
    expect((await attested(path)).problems).toContain('missing: an intact signed inventory');
    expect((await verified(path)).problems).toContain('missing: an intact signed inventory');
  });

  test('an asset may leave the inventory if it was gone or erased, and otherwise is missing', async () => {
    const [, one, two, three] = copy.ids as [string, string, string, string];
    const before = await stage.query('SELECT * FROM tombstones');
    expect(before).toEqual([]);
    await stage.query("UPDATE assets SET state = 'gone', next_at = NULL WHERE id = $1", [three]);
    await write(stage, '2026-01-03', [copy.key]);
    await stage.query('DELETE FROM assets WHERE id = ANY($1)', [[one, two, three]]);
    await stage.query(`INSERT INTO tombstones VALUES ($1, now(), 'ada', 'asked for')`, [sha256(two)]);
    // The older key, which is trusted, has signed this one.
    await write(stage, '2026-01-04', [signingKey(randomBytes(32)), copy.key]);
    for (const id of [one, two, three]) {
      for (const ending of ['', '.asset.json']) await stage.ground.storage.remove(`${copy.keyOf(id)}${ending}`);
    }
    await rm(path, { recursive: true });
    await cp(copy.path, path, { recursive: true });
    await expectProblems(`missing after 2026-01-03: asset ${one} in the inventory`);
  });
});
