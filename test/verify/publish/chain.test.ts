import { createHash, createPublicKey, randomBytes, verify } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { type SigningKeys, signingKey } from '../../../src/floor/signing.ts';
import { leafHash, MerkleTree } from '../../../src/storage/merkle.ts';
import type { Envelope } from '../../../src/verify/publish/chain.ts';
import { writeInventory } from '../../../src/verify/publish/inventory.ts';
import type { Manifest } from '../../../src/verify/publish/manifest.ts';
import type { PublishedKey } from '../../../src/verify/publish/publish-signing-keys.ts';
import { contentOf } from '../../support/mirror.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const { signal } = new AbortController();
const sha256 = (content: string) => createHash('sha256').update(content).digest('hex');

let stage: Stage;
let worker: ReturnType<typeof workerOf>;
let ids: string[];
beforeAll(async () => {
  stage = await newStage();
  worker = workerOf(stage);
  const { companyId, connectionId } = await stage.company();
  ids = await stage.upload(companyId, 7, { content: { text: 'a file' } });
  await stage.sync(connectionId, 'full');
  for (const id of ids) await worker.complete(id);
});
beforeEach(async () => {
  await stage.query('DELETE FROM manifests');
  for (const folder of ['_mirror/manifests/', '_mirror/keys/']) {
    for await (const { key } of stage.ground.storage.list(folder)) await stage.ground.storage.remove(key);
  }
});
afterAll(async () => {
  await worker?.close();
  await stage?.close();
});

const first = signingKey(randomBytes(32));
const second = signingKey(randomBytes(32));

function write(day: string, signingKeys: SigningKeys | null = [first]): Promise<Manifest> {
  const { log } = stage.mirror.service.context;
  const deps = {
    store: stage.store,
    storage: stage.ground.storage,
    log,
    keepVersions: Number.POSITIVE_INFINITY,
    goneRetention: Number.POSITIVE_INFINITY,
    signingKeys: signingKeys ?? undefined,
    pageSize: 2,
    fileSize: 3,
  };
  return writeInventory(deps, { day, now: new Date(), signal });
}
const textAt = async (key: string) => (await contentOf(stage.ground.storage, key))!.toString();
const envelope = async (number: number): Promise<Envelope> =>
  JSON.parse(await textAt(`_mirror/manifests/0000000${number}.json`));
const publicKey = async (keyId: string): Promise<PublishedKey> =>
  JSON.parse(await textAt(`_mirror/keys/${keyId}.json`));
const isSigned = (key: PublishedKey, text: string, signature: string) =>
  verify(null, Buffer.from(text), createPublicKey(key.publicKey), Buffer.from(signature, 'base64'));

test('each manifest is signed, and contains the hash of the one before it', async () => {
  for (const day of ['2031-03-01', '2031-03-02', '2031-03-02']) await write(day);
  let previous: string | null = null;
  for (const [number, day] of [[1, '2031-03-01'] as const, [2, '2031-03-02'] as const, [3, '2031-03-02'] as const]) {
    const { manifest, keyId, signature } = await envelope(number);
    expect(JSON.parse(manifest)).toMatchObject({ number, day, previous, keyId: first.keyId });
    expect(keyId).toBe(first.keyId);
    expect(isSigned(await publicKey(first.keyId), manifest, signature!)).toBe(true);
    previous = sha256(manifest);
  }
  expect(await textAt('_mirror/inventory/2031-03-02/manifest.json')).toBe((await envelope(3)).manifest);
  expect(await stage.store.manifests.latest()).toMatchObject({
    ...{ number: 3, day: '2031-03-02', sha256: previous, keyId: first.keyId },
    envelope: await textAt('_mirror/manifests/00000003.json'),
  });
});

test('a last manifest that was altered in the bucket is replaced and reported, one that is missing is only written', async () => {
  await write('2031-03-01');
  const key = '_mirror/manifests/00000001.json';
  const original = await textAt(key);
  const reported = () => stage.mirror.lines.filter(({ event }) => event === 'manifest.altered');
  await stage.ground.storage.remove(key);
  await write('2031-03-02');
  expect(await textAt(key)).toBe(original);
  expect(reported()).toEqual([]);
  await stage.ground.storage.put('_mirror/manifests/00000002.json', original);
  await write('2031-03-03');
  expect(JSON.parse((await envelope(2)).manifest)).toMatchObject({ number: 2, day: '2031-03-02' });
  expect(reported()).toMatchObject([{ key: '_mirror/manifests/00000002.json' }]);
});

test('the root of a manifest is that of the lines of all its files, with a line for each erased asset', async () => {
  await stage.query(`INSERT INTO tombstones VALUES ($1, '2031-01-01T00:00:00Z', 'ada', 'asked for')`, [sha256('gone')]);
  const { files, tombstones, root, assets } = await write('2031-03-03');
  const tree = new MerkleTree();
  let lines: string[] = [];
  for (const { name } of [...files, tombstones]) {
    const text = gunzipSync(
      (await contentOf(stage.ground.storage, `_mirror/inventory/2031-03-03/${name}`))!,
    ).toString();
    lines = text.split('\n').slice(0, -1);
    for (const line of lines) tree.add(leafHash(line));
  }
  expect({ root, assets, tombstones }).toMatchObject({
    ...{ root: tree.root().toString('hex'), assets: 7, tombstones: { count: 1 } },
  });
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    { erased: sha256('gone'), erasedAt: '2031-01-01T00:00:00.000Z' },
  ]);
});

test('without a key, manifests are chained and not signed', async () => {
  for (const day of ['2031-03-01', '2031-03-02']) await write(day, null);
  const { manifest, ...unsigned } = await envelope(2);
  expect(unsigned).toEqual({ keyId: null, signature: null });
  expect(JSON.parse(manifest)).toMatchObject({
    number: 2,
    previous: sha256((await envelope(1)).manifest),
    keyId: null,
  });
});

test('a new key is signed by the older one, and that signature stays when the older one is no longer configured', async () => {
  await write('2031-03-01');
  await write('2031-03-02', [second, first]);
  await write('2031-03-03', [second]);
  expect((await publicKey(first.keyId)).signedBy).toBeNull();
  const { signedBy } = await publicKey(second.keyId);
  expect(signedBy!.keyId).toBe(first.keyId);
  const vouching = `key of asset-mirror ${second.keyId}\n`;
  expect(isSigned(await publicKey(first.keyId), vouching, signedBy!.signature)).toBe(true);
  expect((await envelope(3)).keyId).toBe(second.keyId);
});

test('processes that write inventories of two days at once make one chain', async () => {
  await Promise.all([write('2031-03-01'), write('2031-03-02'), write('2031-03-03')]);
  const manifests = await Promise.all([1, 2, 3].map(envelope));
  const read = manifests.map(({ manifest }) => JSON.parse(manifest) as Manifest);
  expect(read.map(({ number }) => number)).toEqual([1, 2, 3]);
  expect(read.map(({ previous }) => previous)).toEqual([
    null,
    ...manifests.slice(0, 2).map(({ manifest }) => sha256(manifest)),
  ]);
  expect(new Set(read.map(({ day }) => day)).size).toBe(3);
});

test('a manifest that a process did not write to the bucket before it died is written with the next one', async () => {
  await write('2031-03-01');
  const before = await textAt('_mirror/manifests/00000001.json');
  await stage.ground.storage.remove('_mirror/manifests/00000001.json');
  await write('2031-03-02');
  expect(await textAt('_mirror/manifests/00000001.json')).toBe(before);
});

test('after a rebuild, the chain continues that of the bucket', async () => {
  await write('2031-03-01');
  await write('2031-03-02');
  await stage.query('DELETE FROM manifests');
  await write('2031-03-03');
  expect(JSON.parse((await envelope(3)).manifest)).toMatchObject({
    previous: sha256((await envelope(2)).manifest),
  });
});

test('after a backup of the database was restored, the chain continues that of the bucket', async () => {
  for (const day of ['2031-03-01', '2031-03-02', '2031-03-03']) await write(day);
  await stage.query('DELETE FROM manifests WHERE number > 1');
  await write('2031-03-04', [second, first]);
  expect(JSON.parse((await envelope(4)).manifest)).toMatchObject({
    ...{ number: 4, previous: sha256((await envelope(3)).manifest), keyId: second.keyId },
  });
});

test('no manifest is signed after one that this mirror did not sign', async () => {
  await write('2031-03-01');
  const forged = signingKey(randomBytes(32));
  const { manifest } = await envelope(1);
  const content = JSON.stringify({ ...JSON.parse(manifest), number: 2, previous: sha256(manifest) });
  const { storage } = stage.ground;
  for (const signature of [forged.sign(content), null]) {
    await storage.put(
      '_mirror/manifests/00000002.json',
      JSON.stringify({ manifest: content, keyId: first.keyId, signature }),
    );
    await expect(write('2031-03-02')).rejects.toThrow(/00000002.json is not signed by a key of SIGNING_KEY/);
    // The day's inventory, and with it its manifest, is not touched.
    await expect(write('2031-03-01')).rejects.toThrow(/00000002.json is not signed/);
    expect(await storage.head('_mirror/inventory/2031-03-01/SHA256SUMS')).toBeDefined();
    await stage.query('DELETE FROM manifests');
    await expect(write('2031-03-02')).rejects.toThrow(/00000002.json is not signed by a key of SIGNING_KEY/);
  }
});

test('all configured keys are published, each signed by the next, and a forged signature is replaced', async () => {
  const third = signingKey(randomBytes(32));
  const signingKeys: SigningKeys = [third, second, first];
  await write('2031-03-01', signingKeys);
  const expectKeys = async () => {
    for (const [key, older] of [
      [third, second],
      [second, first],
    ] as const) {
      const { signedBy } = await publicKey(key.keyId);
      expect(signedBy!.keyId).toBe(older.keyId);
      const vouching = `key of asset-mirror ${key.keyId}\n`;
      expect(isSigned(await publicKey(older.keyId), vouching, signedBy!.signature)).toBe(true);
    }
  };
  await expectKeys();
  const { storage } = stage.ground;
  for (const forged of [
    { signedBy: { keyId: second.keyId, signature: 'AAAA' } },
    { publicKey: first.publicKey },
    'x',
  ]) {
    const content = { ...(await publicKey(third.keyId)), ...(typeof forged === 'object' && forged) };
    await storage.put(`_mirror/keys/${third.keyId}.json`, forged === 'x' ? 'x' : JSON.stringify(content));
    await write('2031-03-02', signingKeys);
    await expectKeys();
  }
});
