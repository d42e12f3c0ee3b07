import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { cp, mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { readCopyConfig } from '../../../src/config/config.ts';
import { createLog } from '../../../src/floor/log.ts';
import { type SigningKey, type SigningKeys, signingKey } from '../../../src/floor/signing.ts';
import { attestCopy } from '../../../src/offline/attest.ts';
import type { Finding } from '../../../src/verify/attest/finding.ts';
import { writeInventory } from '../../../src/verify/publish/inventory.ts';
import type { Manifest } from '../../../src/verify/publish/manifest.ts';
import type { Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

/** Runs a program; returns its output. */
export const run = promisify(execFile);
export const sha256 = (content: Buffer | string) => createHash('sha256').update(content).digest('hex');
export const { signal } = new AbortController();
export const log = createLog({ level: 'silent', pretty: false });
export const MiB = 2 ** 20;

/** The days on which the inventories were written. */
export const [first, second] = ['2026-01-01', '2026-01-02'] as const;

/** A copy, the key of its inventories, and its assets. */
export interface Copy {
  path: string;
  key: SigningKey;
  ids: string[];
  keyOf(id: string): string;
}

/** A copy of seven assets, the first with two blocks, and its inventories of two days. */
export async function newCopy(stage: Stage, path: string): Promise<Copy> {
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

/** Writes the inventory of a day. */
export const write = (
  stage: Stage,
  day: string,
  signingKeys: SigningKeys,
  keepVersions = Number.POSITIVE_INFINITY,
): Promise<Manifest> =>
  writeInventory(
    {
      store: stage.store,
      storage: stage.ground.storage,
      log,
      signingKeys,
      keepVersions,
      goneRetention: Number.POSITIVE_INFINITY,
      pageSize: 2,
      fileSize: 4,
    },
    { day, now: new Date(), signal },
  );

/** A finding as both tools print it. */
export const textOf = ({ what, key, after }: Finding) => `${what}${after ? ` after ${after}` : ''}: ${key}`;
/** A text as verify.py prints it. */
export const escaped = (text: string) => text.replaceAll('\u2028', '\\u2028');

/** What `asset-mirror attest` reports about a directory. */
export async function attested(path: string, key?: string) {
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

/** What verify.py reports about a directory or a proof. */
export async function verified(...args: string[]) {
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

/** Changes the text of a file. */
export const change = async (file: string, to: (content: string) => string) =>
  writeFile(file, to(await readFile(file, 'utf8')));

/** A new directory with the files of a copy. */
export async function duplicateOf(copy: Copy): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'asset-mirror-attest-'));
  await cp(copy.path, path, { recursive: true });
  return path;
}

/** Both tools report exactly this. */
export async function expectProblemsIn(path: string, copy: Copy, ...problems: string[]) {
  const python = await verified(path, copy.key.keyId);
  expect(python).toMatchObject({ problems: problems.sort().map(escaped), code: problems.length > 0 ? 1 : 0 });
  const own = await attested(path, copy.key.keyId);
  expect(own.problems).toEqual(problems);
  return own.so;
}

/** An asset whose file was replaced once. */
export async function replacedAsset(stage: Stage): Promise<string> {
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
