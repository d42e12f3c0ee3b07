// @module-tag slow

import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { defaultTimings } from '../../src/floor/timings.ts';
import { HttpError } from '../../src/source/http.ts';
import type { Store } from '../../src/store/store.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';
import { runSyncs } from '../../src/sync/run-syncs.ts';
import { consented, newStore, silent } from '../store/records.ts';
import { createModel, type Model, type Paging } from '../support/model.ts';
import { byOperator } from '../support/reasons.ts';
import { syncDepsOf } from '../support/sync-deps.ts';
import { type End, type HistoryEntry, happening, overlap, type Step, steps } from './histories.ts';

/** High-water marks and paging: real syncs on a real database, against a model of a library that answers arbitrarily. */

const start = Date.UTC(2024, 1, 29);
const numRuns = 40;
const seed = Date.now() % 2 ** 31;

let opened: Awaited<ReturnType<typeof newStore>>;
let store: Store;
let database: pg.Pool;
beforeAll(async () => {
  opened = await newStore();
  store = opened.store;
  database = new pg.Pool({ connectionString: opened.url, max: 2 });
});
afterAll(async () => {
  await database?.end();
  await opened?.close();
});

class Death extends Error {}

/** The store of a process that dies at a call: before the write, or before its result. All later calls fail. */
function mortal(end: End): Store {
  let calls = 0;
  let dead = false;
  const interruptible = <T extends object>(of: T): T =>
    new Proxy(of, {
      get:
        (target, name) =>
        async (...args: unknown[]) => {
          const call = () => (target as Record<string | symbol, (...args: unknown[]) => unknown>)[name]!(...args);
          if (dead) throw new Death('dead');
          if (end.kind !== 'death' || ++calls < end.at) return call();
          dead = true;
          if (end.written) await call();
          throw new Death('dying');
        },
    });
  return {
    ...store,
    connections: interruptible(store.connections),
    syncs: interruptible(store.syncs),
    missing: interruptible(store.missing),
  };
}

interface Person {
  connectionId: string;
  grant: ReturnType<typeof consented>;
  readable: boolean;
}

type Company = { id: string; name: string };

/** Someone who has connected and can read the company. */
async function newPerson(company: Company): Promise<Person> {
  const grant = consented();
  const { id } = await store.connections.connect(grant);
  await store.connections.setCompanies(id, [company], { complete: true });
  return { connectionId: id, grant, readable: true };
}

function applyEntry(model: Model, entry: HistoryEntry | undefined): void {
  if (entry?.kind === 'upload') model.upload(entry);
  else if (entry?.kind === 'time') model.passes(entry.ms);
  else if (entry?.kind === 'remove') model.remove(entry.index);
  else if (entry?.kind === 'cursors are forgotten') model.forgetCursors();
}

/** Runs at each call of the library: something happens between two calls, and the sync may end at one. */
function createInterruption(of: {
  model: Model;
  between: HistoryEntry[];
  end: End;
  stop: AbortController;
}): () => void {
  const { model, end, stop } = of;
  const waiting = [...of.between];
  let calls = 0;
  return () => {
    if (++calls > 1) applyEntry(model, waiting.shift());
    if (end.kind === 'stop' && calls === end.at) stop.abort(new Error('stop'));
    stop.signal.throwIfAborted();
    if (end.kind === 'fault' && calls === end.at) throw new HttpError('the library', 500);
  };
}

/** The library of the model, as a person can read it. */
function clientOf(of: { model: Model; company: Company; person: Person; beforeCall: () => void }): SyncDeps['client'] {
  const { model, company, beforeCall } = of;
  const { grant, readable } = of.person;
  return {
    me: async () => ({ user: grant.user, companies: readable ? [company] : [], problems: [] }),
    listAssets: async (call: { cursor?: string; since?: number }) => {
      beforeCall();
      return model.page(call);
    },
    getAsset: async ({ assetId }: { assetId: string }) => {
      beforeCall();
      return model.detail(assetId);
    },
  } as never as SyncDeps['client'];
}

const depsOf = (store: Store, client: SyncDeps['client']): SyncDeps =>
  syncDepsOf({
    store,
    client,
    withToken: (_, call) => call('token'),
    log: silent,
    timings: defaultTimings,
    overlap,
  });

async function scene(paging: Paging, people: number) {
  const companyId = `c-${randomUUID().slice(0, 8)}`;
  const model = createModel({ companyId, paging, pageSize: 3, start });
  const company = { id: companyId, name: 'Acme' };
  const all: Person[] = [];
  for (let i = 0; i < people; i++) all.push(await newPerson(company));

  return {
    companyId,
    model,
    people: all,
    happens: (what: HistoryEntry | undefined): void => applyEntry(model, what),

    async run(
      person: Person,
      mode: 'incremental' | 'full',
      options: { between?: HistoryEntry[]; end?: End; acceptGone?: true } = {},
    ): Promise<void> {
      const { connectionId } = person;
      const { between = [], end = { kind: 'whole' } } = options;
      const stop = new AbortController();
      const beforeCall = createInterruption({ model, between, end, stop });
      await store.syncs.request(connectionId, mode, options.acceptGone && { acceptGone: true });
      await runSyncs(
        depsOf(mortal(end), clientOf({ model, company, person, beforeCall })),
        connectionId,
        stop.signal,
      ).catch((error) => {
        if (!(error instanceof Death)) throw error;
      });
      // The lease of a dead process expires.
      await database.query('UPDATE connections SET sync_owner = NULL, sync_until = NULL WHERE id = $1', [connectionId]);
    },

    async records() {
      const rows = await store.assets.search({ companyId, limit: 10_000 });
      return new Map(rows.map((asset) => [asset.id, asset]));
    },
  };
}
type Scene = Awaited<ReturnType<typeof scene>>;

async function carryOut(at: Scene, all: Step[], check: () => Promise<void>): Promise<void> {
  for (const step of all) {
    const person = 'who' in step ? at.people[step.who]! : undefined;
    switch (step.kind) {
      case 'happens':
        for (const what of step.what) at.happens(what);
        break;
      case 'run':
        await at.run(person!, step.mode, step);
        break;
      case 'leaves':
        await store.connections.end(person!.connectionId, byOperator);
        break;
      case 'comes back':
        await store.connections.connect(person!.grant);
        break;
      default:
        person!.readable = step.kind === 'gets it back';
    }
    await check();
  }
}

const there = (model: Model) => model.assets.filter((asset) => !asset.removed).map((asset) => asset.id);

/** Each asset behind a high-water mark is in the records. */
async function marksAreTrue(at: Scene): Promise<void> {
  const records = await at.records();
  for (const { connectionId } of at.people) {
    const [company] = await store.connections.companies([connectionId]);
    if (!company || company.highWaterMark === null) continue;
    const behind = at.model.assets.filter(
      (asset) =>
        !asset.removed && asset.visibleAt <= at.model.now && asset.uploadDate <= company.highWaterMark! - overlap,
    );
    expect(behind.map((asset) => asset.id).filter((id) => !records.has(id))).toEqual([]);
  }
}

const modes = fc.constantFrom<Paging>('keyset', 'offset');
const settings = () => {
  process.stdout.write(`seed ${seed}\n`);
  // Shrinking a counterexample takes time; it is reported in any case.
  return { seed, numRuns, interruptAfterTimeLimit: 240_000 };
};

test('incremental syncs miss no upload that is listed within the overlap, whatever happens in between', {
  timeout: 600_000,
}, async () => {
  const what = happening({ back: 0, delay: overlap - 1, removals: false });
  await fc.assert(
    fc.asyncProperty(modes, steps(what, 1), async (paging, all) => {
      const at = await scene(paging, 1);
      const [person] = at.people;
      // The first listing after a connect may fail or be interrupted, too.
      await carryOut(at, all, () => marksAreTrue(at));
      at.model.passes(overlap);
      await at.run(person!, 'incremental');
      expect([...(await at.records()).keys()].sort()).toEqual(there(at.model).sort());
    }),
    settings(),
  );
});

test('a full sync misses no upload, and marks only removed assets as gone, whatever happens in between', {
  timeout: 600_000,
}, async () => {
  const what = happening({ back: 100 * overlap, delay: 5 * overlap, removals: true });
  await fc.assert(
    fc.asyncProperty(modes, steps(what, 1), async (paging, all) => {
      const at = await scene(paging, 1);
      const [person] = at.people;
      const gone = async () =>
        [...(await at.records()).values()].filter(({ state }) => state === 'gone').map(({ id }) => id);
      await carryOut(at, all, async () => {
        const wrong = (await gone()).filter((id) => there(at.model).includes(id));
        expect(wrong).toEqual([]);
      });
      at.model.passes(10 * overlap);
      // An interrupted sync may have started before the last upload.
      await at.run(person!, 'full');
      await at.run(person!, 'full', { acceptGone: true });
      const records = await at.records();
      expect(there(at.model).filter((id) => !records.has(id))).toEqual([]);
      const removed = [...records.keys()].filter((id) => !there(at.model).includes(id));
      expect((await gone()).sort()).toEqual(removed.sort());
      expect((await database.query('SELECT FROM sightings')).rowCount).toBe(0);
    }),
    settings(),
  );
});

test('when one of two connections ends, the other misses no upload of their company and gets all its assets', {
  timeout: 600_000,
}, async () => {
  const what = happening({ back: 0, delay: overlap - 1, removals: false });
  await fc.assert(
    fc.asyncProperty(modes, steps(what, 2), fc.nat({ max: 1 }), async (paging, all, last) => {
      const at = await scene(paging, 2);
      await carryOut(at, all, () => marksAreTrue(at));
      const left = at.people[last]!;
      const other = at.people[1 - last]!;
      await store.connections.end(other.connectionId, byOperator);
      await store.connections.connect(left.grant);
      left.readable = true;
      at.model.passes(overlap);
      await at.run(left, 'incremental');
      await store.connections.adopt(1000);
      const records = await at.records();
      expect([...records.keys()].sort()).toEqual(there(at.model).sort());
      for (const asset of records.values()) {
        expect(asset).toMatchObject({ state: 'pending', connectionId: left.connectionId });
      }
    }),
    settings(),
  );
});
