// @module-tag slow
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, test } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { attestCopy, proveAsset } from '../../../src/offline/attest.ts';
import { idSegment } from '../../../src/storage/keys.ts';
import { checkObjects } from '../../../src/verify/attest/check-objects.ts';
import type { Finding } from '../../../src/verify/attest/finding.ts';
import type { InventoryLine } from '../../../src/verify/publish/inventory-line.ts';
import { contentOf } from '../../support/mirror.ts';
import { spawned } from '../../support/spawned.ts';
import { newStage, type Stage } from '../../support/stage.ts';
import {
  attested,
  type Copy,
  change,
  duplicateOf,
  escaped,
  expectProblemsIn,
  first,
  log,
  MiB,
  newCopy,
  run,
  second,
  sha256,
  signal,
  textOf,
  verified,
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

  test('an object that cannot be read is not proven, and does not hide what the others show', async () => {
    const manifest = JSON.parse(await readFile(inventory(second, 'manifest.json'), 'utf8'));
    const { storage } = stage.ground;
    const [bad, damaged] = [copy.keyOf(copy.ids[1]!), copy.keyOf(copy.ids[2]!)];
    const get: typeof storage.get = async (key, options) => {
      if (key === bad) throw new Error('EIO: i/o error, read');
      return key === damaged ? Readable.from([Buffer.from('a fool')]) : storage.get(key, options);
    };
    const check = async (list: typeof storage.list) => {
      const findings: Finding[] = [];
      const at = { storage: { name: storage.name, get, list }, hasVersions: false, signal };
      const counts = { assets: 0, total: 7, objects: 0, bytes: 0 };
      await checkObjects({ ...at, found: (finding) => findings.push(finding) }, manifest, counts, () => {});
      return findings.map(({ what, key, why }) => ({ what, key, why }));
    };
    expect(await check((prefix, options) => storage.list(prefix, options))).toEqual(
      expect.arrayContaining([
        { what: 'unproven', key: bad, why: 'cannot be read: EIO: i/o error, read' },
        { what: 'altered', key: damaged, why: expect.stringContaining('has SHA-256') },
      ]),
    );
    const away = () => {
      throw new Error('the disk is away');
    };
    await expect(check(away)).rejects.toThrow('the disk is away');
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
});

const s3 = inject('s3');
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
