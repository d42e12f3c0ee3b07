// @module-tag slow
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { newLine } from '../storage/line.ts';
import { asks, internalError, newHttpLine, slowDown } from '../support/http-line.ts';
import type { Rule } from '../support/library.ts';
import { grounds } from '../support/mirror.ts';
import { newScene, type Scene } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { expectWhole, sizes } from './whole-files.ts';

/**
 * The faults of a transfer, for a file of one PUT and for one in parts, on each store. After each: the file and its record are
 * complete, no unnecessary attempt is spent, and nothing else remains.
 */

const MiB = 2 ** 20;

interface Row {
  /** A fault of the source, for each of the two files. */
  source?: (size: number) => Omit<Rule, 'endpoint' | 'assetId'>[];
  /** Of the file as the library has it. */
  asset?: Parameters<Scene['upload']>[0];
  /** Starts the fault before the transfer; returns the function that ends it after it was noticed. */
  around?: (lines: Lines) => Promise<() => Promise<void>>;
  store?: Parameters<Lines['s3']['set']>;
  /** The maximum of attempts that it costs. */
  attempts?: number;
  /** The requests to the bucket. */
  seen?: (calls: Lines['s3']['calls']) => void;
}

type TcpLine = Awaited<ReturnType<typeof newLine>>;
interface Lines {
  scene: Scene;
  s3: Awaited<ReturnType<typeof newHttpLine>>;
  database: TcpLine;
  redis: TcpLine | undefined;
}

/** Closes all connections and refuses new ones. Returns how many were tried. */
function takeAway(line: TcpLine): () => number {
  let refused = 0;
  line.set({
    request(_chunk, _sent, { client }) {
      refused++;
      client.destroy();
      return undefined;
    },
  });
  line.cut();
  return () => refused;
}

const slow = (size: number) => ({ stallAfter: Math.floor(size / 40), times: 1 });

const sourceFaults: Record<string, Row> = {
  'the download is reset': { source: () => [{ cutAfter: MiB, reset: true, times: 2 }] },
  'the download stalls': { source: () => [{ stallAfter: MiB, times: 2 }] },
  'the link expires in the middle': {
    source: (size) => [
      { cutAfter: MiB, times: 1 },
      { expireLinks: true, skip: size > 32 * MiB ? 2 : 1, times: 1 },
    ],
  },
  'the library fails for a moment': { source: () => [{ status: 503, skip: 1, times: 1 }], attempts: 1 },
  'a download without ranges is interrupted': {
    source: () => [{ ignoreRange: true }, { cutAfter: MiB, skip: 1, times: 1 }],
    attempts: 1,
  },
  'a download of unknown length is interrupted': {
    asset: { override: { size: null } },
    source: (size) => [
      { chunked: true, ignoreRange: true },
      { cutAfter: size - 100_000, times: 1 },
    ],
    attempts: 1,
  },
};

const serverFaults: Record<string, Row> = {
  'the database goes away': {
    source: (size) => [slow(size)],
    async around({ scene, database }) {
      await until('the transfer', async () => (await scene.admin.requests({ endpoint: 'media' })).length > 0);
      takeAway(database);
      await until('it to be missed', () =>
        scene.mirror.lines.some(({ msg }) => msg === 'database or queue failed, will retry'),
      );
      return async () => database.set({});
    },
    attempts: 1,
  },
};

const redisFaults: Record<string, Row> = {
  'Redis goes away': {
    source: (size) => [slow(size)],
    async around({ scene, redis }) {
      await until('the transfer', async () => (await scene.admin.requests({ endpoint: 'media' })).length > 0);
      const refused = takeAway(redis!);
      await until('it to be missed', () => refused() >= 5);
      return async () => redis!.set({});
    },
  },
};

const storeFaults: Record<string, Row> = {
  'the store answers SlowDown to a PUT': { store: [{ on: asks.put, times: 5, answer: slowDown }] },
  'the store answers SlowDown to parts': { store: [{ on: asks.part, times: 8, answer: slowDown }] },
  'the store answers SlowDown to CompleteMultipartUpload': {
    store: [{ on: asks.complete, times: 4, answer: slowDown }],
  },
  'the store answers 500 to parts': { store: [{ on: asks.part, times: 8, answer: internalError }] },
  'the store answers 500 to CompleteMultipartUpload': {
    store: [{ on: asks.complete, times: 4, answer: internalError }],
  },
  'the connection to the store is reset in a part': { store: [{ on: asks.part, times: 3, resetAfter: MiB }] },
  'the connection to the store is reset in a PUT': {
    store: [{ on: asks.put, times: 1, resetAfter: MiB }],
    attempts: 1,
  },
  'the answer to the PUT is lost': { store: [{ on: asks.put, times: 1, dropAnswer: true }], attempts: 1 },
  'the answer to CompleteMultipartUpload is lost': {
    store: [{ on: asks.complete, times: 1, dropAnswer: true }],
    seen(calls) {
      // The object at the key decides: no second upload, and no part is sent twice.
      expect(calls.filter(asks.begin)).toHaveLength(1);
      expect(calls.filter(asks.part)).toHaveLength(3);
    },
  },
  'all answers to CompleteMultipartUpload are lost': {
    store: [{ on: asks.complete, times: 3, dropAnswer: true }],
    seen(calls) {
      expect(calls.filter(asks.begin)).toHaveLength(1);
      expect(calls.filter(asks.part)).toHaveLength(3);
    },
  },
  'the answer to CreateMultipartUpload is lost': { store: [{ on: asks.begin, times: 1, dropAnswer: true }] },
};

describe.each(grounds())('a transfer with a fault ($name)', (kind) => {
  let lines: Lines;
  beforeAll(async () => {
    const made: Partial<Lines> = {};
    const scene = await newScene({
      redis: kind.redis,
      s3: kind.s3,
      environment: { TRANSFER_STALL_TIMEOUT: '5s' },
      async through({ DATABASE_URL, REDIS_URL, S3_ENDPOINT }) {
        const over = (url: string, line: TcpLine) => {
          const other = new URL(url);
          other.host = new URL(line.endpoint).host;
          return other.href;
        };
        made.database = await newLine(DATABASE_URL!);
        made.redis = REDIS_URL === undefined ? undefined : await newLine(REDIS_URL);
        // A directory has no connection, so this one is not used.
        made.s3 = await newHttpLine(S3_ENDPOINT ?? 'http://127.0.0.1:9');
        return {
          DATABASE_URL: over(DATABASE_URL!, made.database),
          ...(made.redis && { REDIS_URL: over(REDIS_URL!, made.redis) }),
          ...(S3_ENDPOINT !== undefined && { S3_ENDPOINT: made.s3.endpoint }),
        };
      },
    });
    lines = { ...(made as Lines), scene };
  });
  afterEach(async () => {
    lines.s3.set();
    lines.database.set({});
    lines.redis?.set({});
    await lines.scene.admin.clearFaults();
    await lines.scene.admin.clearRequests();
    lines.scene.mirror.lines.length = 0;
  });
  afterAll(async () => {
    await lines?.scene.close();
    await lines?.s3.close();
    await lines?.database.close();
    await lines?.redis?.close();
  });

  const rows = { ...sourceFaults, ...serverFaults, ...(kind.redis && redisFaults), ...(kind.s3 && storeFaults) };

  test.each(Object.entries(rows))(
    'small and large files are mirrored completely, and nothing else is left, when %s',
    async (name, row) => {
      const { scene } = lines;
      const files = await Promise.all(
        Object.entries(sizes).map(async ([which, size]) => {
          const seed = `${which}: ${name}`;
          const id = await scene.upload({ name: `${which}.bin`, content: { seed, size }, ...row.asset });
          for (const fault of row.source?.(size) ?? []) {
            await scene.admin.addFault({ endpoint: 'media', assetId: id, ...fault });
          }
          return { id, seed, size };
        }),
      );
      lines.s3.set(...(row.store ?? []));
      await scene.resync();
      const setRight = await row.around?.(lines);
      await setRight?.();
      await expectWhole(scene, files, row.attempts);
      row.seen?.(lines.s3.calls);
      for (const { times } of row.store ?? []) expect(times, 'the fault was met').toBe(0);
    },
  );

  test('small and large files that are replaced in transfer are mirrored in their second version', async () => {
    const { scene } = lines;
    const files: { id: string; seed: string; size: number }[] = [];
    for (const [which, size] of Object.entries(sizes)) {
      const id = await scene.upload({ name: `${which}.bin`, content: { seed: 'before', size } });
      await scene.admin.addFault({ endpoint: 'media', assetId: id, stallAfter: MiB, skip: size > 32 * MiB ? 2 : 0 });
      files.push({ id, seed: `after: ${which}`, size: size + 1 });
    }
    await scene.resync();
    for (const { id } of files) {
      // A transaction on a dead connection keeps its locks until the server ends it.
      const asked = async () => (await scene.admin.requests({ assetId: id, endpoint: 'media' })).length;
      await until('the transfer', asked);
    }
    for (const { id, seed, size } of files) await scene.admin.changeAsset(id, { content: { seed, size } });
    await scene.admin.clearFaults();
    await scene.resync();
    await expectWhole(scene, files, 4);
  });
});
