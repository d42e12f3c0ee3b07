// @module-tag slow
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { createLog } from '../../../src/floor/log.ts';
import { type Signer, type SigningKey, signingKey } from '../../../src/floor/signing.ts';
import { attestCopy, proveAsset } from '../../../src/offline/attest.ts';
import { idSegment } from '../../../src/storage/keys.ts';
import type { Finding } from '../../../src/verify/attest/finding.ts';
import { writeInventory } from '../../../src/verify/publish/inventory.ts';
import type { InventoryLine } from '../../../src/verify/publish/inventory-line.ts';
import type { Manifest } from '../../../src/verify/publish/manifest.ts';
import { contentOf } from '../../support/mirror.ts';
import { spawned } from '../../support/spawned.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

const run = promisify(execFile);
const sha256 = (content: Buffer | string) => createHash('sha256').update(content).digest('hex');
const { signal } = new AbortController();
const log = createLog({ level: 'silent', pretty: false });
const MiB = 2 ** 20;

/** The days on which the inventories were written. */
const [first, second] = ['2026-01-01', '2026-01-02'] as const;

interface Copy {
  path: string;
  key: SigningKey;
  ids: string[];
  keyOf(id: string): string;
}

/** A copy of seven assets, the first with two blocks, and its inventories of two days. */
async function newCopy(stage: Stage, path: string): Promise<Copy> {
  const worker = workerOf(stage);
  const { companyId, connectionId } = await stage.company();
  const file = { content: { text: 'a file' }, name: 'ä $ \u2028 b.bin' };
  const ids = await stage.upload(companyId, 2, file);
  ids.push(...(await stage.upload(companyId, 1, { ...file, id: `3 of ${companyId}: 100%?` })));
  ids.push(...(await stage.upload(companyId, 3, file)));
  const large = await stage.upload(companyId, 1, { content: { seed: 'large', size: 17 * MiB } });
  ids.unshift(...large);
  await stage.sync(connectionId, 'full');
  for (const id of ids) await worker.complete(id);
  await worker.close();
  const key = signingKey(randomBytes(32));
  for (const day of [first, second]) await write(stage, day, [key]);
  const rows = new Map((await stage.assets(companyId)).map((asset) => [asset.id, asset.media!.key]));
  return { path, key, ids, keyOf: (id) => rows.get(id)! };
}

const write = (stage: Stage, day: string, signer: Signer, keepVersions = Number.POSITIVE_INFINITY): Promise<Manifest> =>
  writeInventory(
    {
      store: stage.store,
      storage: stage.ground.storage,
      log,
      signer,
      keepVersions,
      goneRetention: Number.POSITIVE_INFINITY,
      pageSize: 2,
      fileSize: 4,
    },
    { day, now: new Date(), signal },
  );

const textOf = ({ what, key, after }: Finding) => `${what}${after ? ` after ${after}` : ''}: ${key}`;
const escaped = (text: string) => text.replaceAll('\u2028', '\\u2028');

/** What `asset-mirror attest` and verify.py report about a directory. */
async function attested(path: string, key?: string) {
  const problems: string[] = [];
  const so = await attestCopy(
    readCopyConfig({}),
    { at: { kind: 'directory', path }, key },
    {
      log,
      stop: signal,
      report: {
        start: () => {},
        progress: () => {},
        found: (finding) => problems.push(textOf(finding)),
      },
    },
  );
  return { so, problems: problems.sort() };
}
async function verified(...args: string[]) {
  const { stdout, code } = await run('python3', ['docs/operate/verify.py', ...args]).then(
    ({ stdout }) => ({ stdout, code: 0 }),
    ({ stdout, stderr, code }) => {
      if (stderr) throw new Error(stderr);
      return { stdout: stdout as string, code: code as number };
    },
  );
  const problems = [...stdout.matchAll(/^(?:altered|missing|extra|unproven)(?: after [\d-]+)?: .*$/gm)].map(([line]) =>
    line.replace(/ \(.*\)$/, ''),
  );
  return { code, stdout, problems: problems.sort() };
}

describe('a copy in a directory', () => {
  let stage: Stage;
  let copy: Copy;
  let path: string;
  beforeAll(async () => {
    stage = await newStage();
    copy = await newCopy(stage, stage.ground.environment.STORAGE_URL!.slice('file://'.length));
  });
  beforeEach(async () => {
    path = await mkdtemp(join(tmpdir(), 'asset-mirror-attest-'));
    await cp(copy.path, path, { recursive: true });
    return () => rm(path, { recursive: true });
  });
  afterAll(() => stage?.close());

  const inventory = (day: string, name: string) => join(path, '_mirror/inventory', day, name);
  const change = async (file: string, to: (content: string) => string) =>
    writeFile(file, to(await readFile(file, 'utf8')));

  /** Both tools report exactly this. */
  async function expectProblems(...problems: string[]) {
    const python = await verified(path, copy.key.keyId);
    expect(python).toMatchObject({ problems: problems.sort().map(escaped), code: problems.length > 0 ? 1 : 0 });
    const own = await attested(path, copy.key.keyId);
    expect(own.problems).toEqual(problems);
    return own.so;
  }

  test('an unchanged copy is proven by both tools, with every object and every byte', async () => {
    const so = await expectProblems();
    expect(so).toMatchObject({ manifests: 2, days: 2, day: second, assets: 7, objects: 14, unproven: 0 });
    expect(so.bytes).toBeGreaterThan(17 * MiB);
    // Without a fingerprint, that of the last manifest is shown.
    expect((await attested(path)).so).toMatchObject({ keyId: copy.key.keyId, problems: 0 });
    expect((await verified(path)).stdout).toContain(`Trusted key: ${copy.key.keyId}.`);
  });

  test('an object, its record and the inventory that are altered together are found, with key and day', async () => {
    const key = copy.keyOf(copy.ids[3]!);
    const other = Buffer.from('b file');
    await writeFile(join(path, key), other);
    const record = join(path, `${key}.asset.json`);
    await change(record, (content) => content.replaceAll(sha256('a file'), sha256(other)));
    const changed = await readFile(record);
    const { name, before, after } = await changeLine(copy.ids[3]!, (line) => {
      Object.assign(line.objects[0]!, { sha256: sha256(other), crc32: null });
      Object.assign(line.objects[1]!, { sha256: sha256(changed), crc32: null });
    });
    await change(inventory(second, 'manifest.json'), (content) => content.replace(sha256(before), sha256(after)));
    await expectProblems(
      `altered after ${second}: _mirror/inventory/${second}/manifest.json`,
      `altered after ${second}: _mirror/inventory/${second}/${name}`,
      `altered after ${first}: ${key}`,
      `altered after ${first}: ${key}.asset.json`,
    );
  });

  /** Changes the line of an asset in the last inventory. */
  async function changeLine(id: string, to: (line: InventoryLine) => void) {
    for (const name of ['assets-00001.jsonl.gz', 'assets-00002.jsonl.gz']) {
      const before = await readFile(inventory(second, name));
      const lines: InventoryLine[] = gunzipSync(before)
        .toString()
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line));
      const line = lines.find((each) => each.id === id);
      if (!line) continue;
      to(line);
      const after = gzipSync(lines.map((each) => `${JSON.stringify(each)}\n`).join(''));
      await writeFile(inventory(second, name), after);
      return { name, before, after };
    }
    throw new Error(`no line of ${id}`);
  }

  test('objects that are missing, extra, longer, or differ in one byte of a later block are found', async () => {
    const [large, second_, third, fourth] = copy.ids.map(copy.keyOf) as [string, string, string, string];
    const content = await readFile(join(path, large));
    content[17 * MiB - 1]! ^= 1;
    await writeFile(join(path, large), content);
    await rm(join(path, second_));
    await rm(join(path, `${third}.asset.json`));
    await writeFile(join(path, fourth), 'a file that is longer');
    await writeFile(join(path, `${fourth}.stray`), 'extra');
    await expectProblems(
      `altered after ${second}: ${large}`,
      `missing after ${second}: ${second_}`,
      `missing after ${second}: ${third}.asset.json`,
      `altered after ${second}: ${fourth}`,
      `extra after ${second}: ${fourth}.stray`,
    );
  });

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

  test('an object of another kind, with a long key or many dots, is extra or missing, and nothing waits for it', async () => {
    await rm(join(path, copy.keyOf(copy.ids[1]!)));
    await run('mkfifo', [join(path, copy.keyOf(copy.ids[1]!))]);
    const long = `${'x'.repeat(250)}${'.'.repeat(3)}y`;
    await writeFile(join(path, long), '');
    await writeFile(join(path, `${copy.keyOf(copy.ids[2]!)}.asset.json`), '['.repeat(100_000));
    const python = await verified(path, copy.key.keyId);
    expect(python.problems).toEqual(
      expect.arrayContaining([
        `missing after ${second}: ${escaped(copy.keyOf(copy.ids[1]!))}`,
        `extra after ${second}: ${long}`,
      ]),
    );
    const own = await attested(path, copy.key.keyId);
    expect(own.problems).toEqual(
      [
        `altered after ${second}: ${copy.keyOf(copy.ids[2]!)}.asset.json`,
        `extra after ${second}: ${long}`,
        `missing after ${second}: ${copy.keyOf(copy.ids[1]!)}`,
      ].sort(),
    );
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

  test('what was written, replaced or erased after the inventory is unproven, unless the time is another', {}, async () => {
    const [, one, two, three, four] = copy.ids as [string, string, string, string, string];
    await writeFile(join(path, copy.keyOf(one)), 'replaced');
    for (const id of [two, three]) await rm(join(path, copy.keyOf(id)));
    await mkdir(join(path, '_mirror/tombstones'), { recursive: true });
    await mkdir(join(path, `_mirror/versions/${idSegment(three)}`), { recursive: true });
    await writeFile(join(path, `${copy.keyOf(four)}.vtt`), 'WEBVTT');
    const at = async (time: Date) => {
      for (const id of [one, four]) {
        const record = join(path, `${copy.keyOf(id)}.asset.json`);
        await change(record, (content) => content.replace(/"writtenAt": ".*"/, `"writtenAt": "${time.toISOString()}"`));
      }
      await writeFile(join(path, `_mirror/tombstones/${sha256(two)}.json`), JSON.stringify({ erasedAt: time }));
      const version = join(path, `_mirror/versions/${idSegment(three)}/20260131T120000000Z.json`);
      await writeFile(version, JSON.stringify({ replacedAt: time }));
    };
    for (const time of [new Date('2025-12-31'), new Date('2999-12-31')]) {
      await at(time);
      await expectProblems(
        `altered after ${second}: ${copy.keyOf(one)}`,
        `altered after ${second}: ${copy.keyOf(one)}.asset.json`,
        `altered after ${second}: ${copy.keyOf(four)}.asset.json`,
        `extra after ${second}: ${copy.keyOf(four)}.vtt`,
        `missing after ${second}: ${copy.keyOf(three)}`,
        `missing after ${second}: ${copy.keyOf(two)}`,
      );
    }
    await at(new Date());
    expect(
      await expectProblems(
        `unproven after ${second}: ${copy.keyOf(one)}`,
        `unproven after ${second}: ${copy.keyOf(one)}.asset.json`,
        `unproven after ${second}: ${copy.keyOf(four)}.asset.json`,
        `unproven after ${second}: ${copy.keyOf(four)}.vtt`,
        `unproven after ${second}: ${copy.keyOf(three)}`,
        `unproven after ${second}: ${copy.keyOf(two)}`,
      ),
    ).toMatchObject({ problems: 0, unproven: 6 });
  });

  test('a proof of one asset is accepted with its file, and neither with another file nor after a change', {}, async () => {
    const [large, small] = copy.ids as [string, string];
    const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-proof-'));
    const config = readCopyConfig({});
    const at = { kind: 'directory' as const, path };
    const proofs = join(directory, 'proof.json');
    const { key } = copy;
    for (const assetId of copy.ids) {
      const proof = await proveAsset(config, { at, assetId, day: first }, { log, stop: signal });
      await writeFile(proofs, JSON.stringify(proof));
      const media = join(path, copy.keyOf(assetId));
      const { code, stdout } = await verified('proof', proofs, media, key.keyId);
      expect({ assetId, code }).toEqual({ assetId, code: 0 });
      expect(stdout).toContain(`${first}: ${assetId} was mirrored`);
      const other = join(path, copy.keyOf(assetId === large ? small : large));
      expect((await verified('proof', proofs, other)).problems).toEqual([`altered after ${first}: ${other}`]);
      await writeFile(proofs, JSON.stringify({ ...proof, entry: proof.entry.replace('mirrored', 'pending') }));
      expect((await verified('proof', proofs)).code).toBe(1);
    }
    // The second manifest proves the first one, but a proof contains only one.
    await change(join(path, '_mirror/manifests/00000001.json'), (content) =>
      content.replace(/"signature": ".{8}/, '"signature": "AAAAAAAA'),
    );
    const unsigned = proveAsset(config, { at, assetId: small, day: first }, { log, stop: signal });
    await expect(unsigned).rejects.toThrow(/not signed by a trusted key/);
    await expect(proveAsset(config, { at, assetId: 'unknown' }, { log, stop: signal })).rejects.toThrow(
      /no asset unknown/,
    );
    await rm(directory, { recursive: true });
  });

  test('attest prints what it found, exits with 1, and writes nothing', async () => {
    await rm(join(path, copy.keyOf(copy.ids[1]!)));
    await rm(join(path, '.asset-mirror-tmp'), { recursive: true, force: true });
    const asked = run(process.execPath, ['src/main.ts', 'attest', path, '--json'], {
      env: { ...spawned },
    });
    const { stdout, code } = await asked.then(
      () => ({ stdout: '', code: 0 }),
      (error) => error,
    );
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      ...{ keyId: copy.key.keyId, problems: [`missing after ${second}: ${copy.keyOf(copy.ids[1]!)}`] },
    });
    await expect(readFile(join(path, '.asset-mirror-tmp'))).rejects.toThrow(/ENOENT/);
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

/** An asset whose file was replaced once. */
async function replacedAsset(stage: Stage): Promise<string> {
  const worker = workerOf(stage);
  const { companyId, connectionId } = await stage.company();
  const [id] = await stage.upload(companyId, 1, { content: { text: 'first' } });
  for (const content of ['first', 'second one']) {
    await stage.admin.changeAsset(id!, { content: { text: content } });
    await stage.sync(connectionId, 'full', { acceptReplaced: true });
    await worker.complete(id!);
  }
  await worker.close();
  return id!;
}

test('a superseded file that is missing is found, unless it has expired', async () => {
  const stage = await newStage();
  try {
    const at = stage.ground.environment.STORAGE_URL!.slice('file://'.length);
    const id = await replacedAsset(stage);
    const key = signingKey(randomBytes(32));
    await write(stage, first, [key]);
    expect((await attested(at)).so).toMatchObject({ problems: 0, objects: 4 });
    expect(await verified(at)).toMatchObject({ code: 0 });
    const [version] = await stage.store.versions.ofAsset(id);
    const kept = version!.files.find(({ role }) => role === 'media')!.at;
    await stage.ground.storage.remove(kept);
    const missing = [`missing after ${first}: ${kept}`];
    expect((await attested(at)).problems).toEqual(missing);
    expect((await verified(at)).problems).toEqual(missing);
    await write(stage, second, [key], 1);
    expect((await attested(at)).problems).toEqual([`unproven after ${second}: ${kept}`]);
    expect((await verified(at)).problems).toEqual([`unproven after ${second}: ${kept}`]);
  } finally {
    await stage.close();
  }
});

const s3 = inject('s3');
test.runIf(s3)('a download of a bucket with versions is proven without its superseded versions', async () => {
  const stage = await newStage({ s3, versions: true });
  const path = await mkdtemp(join(tmpdir(), 'asset-mirror-download-'));
  try {
    const id = await replacedAsset(stage);
    const [version] = await stage.store.versions.ofAsset(id);
    expect(version!.files[0]!.versionId).toBeDefined();
    const key = signingKey(randomBytes(32));
    await write(stage, first, [key]);
    const { storage } = stage.ground;
    for await (const object of storage.list('')) {
      await mkdir(dirname(join(path, object.key)), { recursive: true });
      await writeFile(join(path, object.key), (await contentOf(storage, object.key))!);
    }
    expect((await attested(path, key.keyId)).so).toMatchObject({ problems: 0, unproven: 0, objects: 2 });
    expect(await verified(path, key.keyId)).toMatchObject({ problems: [], code: 0 });
  } finally {
    await rm(path, { recursive: true });
    await stage.close();
  }
});

test.runIf(s3)('a copy in a bucket is proven without a database, and an altered object is found', async () => {
  const stage = await newStage({ s3 });
  try {
    const copy = await newCopy(stage, '');
    const { STORAGE_URL, S3_ENDPOINT, S3_REGION, S3_FORCE_PATH_STYLE } = stage.ground.environment;
    const config = readCopyConfig({ STORAGE_URL, S3_ENDPOINT, S3_REGION, S3_FORCE_PATH_STYLE });
    const problems: string[] = [];
    const report = {
      start: () => {},
      progress: () => {},
      found: (finding: Finding) => problems.push(textOf(finding)),
    };
    const check = () => attestCopy(config, { key: copy.key.keyId }, { log, stop: signal, report });
    expect(await check()).toMatchObject({ problems: 0, objects: 14, days: 2, day: second });
    const key = copy.keyOf(copy.ids[0]!);
    const content = (await contentOf(stage.ground.storage, key))!;
    content[16 * MiB]! ^= 1;
    await stage.ground.storage.put(key, content);
    expect(await check()).toMatchObject({ problems: 1 });
    expect(problems).toEqual([`altered after ${second}: ${key}`]);
    expect(await text((await stage.ground.storage.get('_mirror/manifests/00000002.json'))!)).toContain(copy.key.keyId);
  } finally {
    await stage.close();
  }
});
