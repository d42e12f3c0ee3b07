import { setTimeout as sleep } from 'node:timers/promises';
import { check } from './check.ts';
import type { Finding } from './checks/finding.ts';
import type { Happened } from './checks/history.ts';
import { marks, readMarks } from './checks/marks.ts';
import type { Plan, PlannedFault } from './plan.ts';
import { users } from './plan.ts';
import { ageDrafts, sabotage } from './sabotage.ts';
import type { World } from './world.ts';

export interface Report {
  findings: Finding[];
  history: Happened[];
  /** Milliseconds of each stretch of the run. */
  took: Record<string, number>;
}

/** How long the mirror may take to become idle after all faults have ended. */
const restMs = 8 * 60_000;
/** The maximum time between two faults, also without requests of the mirror. */
const latestMs = 3000;

/** One run: uploads and faults, the end of all faults, idle state, a full sync, and the check. */
export async function runPlan(
  world: World,
  plan: Plan,
  tell: (line: string) => void,
  options: { sabotage?: boolean } = {},
): Promise<Report> {
  const took: Record<string, number> = {};
  let since = Date.now();
  const lap = (name: string) => {
    took[name] = Date.now() - since;
    since = Date.now();
  };
  const history: Happened[] = [];
  const findings: Finding[] = [];

  await wave(world, plan, 0);
  for (const { id } of users) await world.connect(id);
  const watch = watchMarks(world);
  lap('first uploads');

  const running = new Set<Promise<void>>();
  const busy = new Map<string, Promise<void>>();
  for (const fault of plan.faults) {
    await wave(world, plan, fault.number);
    await someRequests(world, fault.after);
    // One fault at a time for each part of the world.
    for (let before = busy.get(fault.kind.of); before; before = busy.get(fault.kind.of)) await before;
    const work = meet(world, fault, history, tell).finally(() => {
      running.delete(work);
      if (busy.get(fault.kind.of) === work) busy.delete(fault.kind.of);
    });
    running.add(work);
    busy.set(fault.kind.of, work);
    if (!fault.alongside) await work;
  }
  await Promise.all(running);
  lap('faults');

  await reconnect(world);
  await rest(world, 'after the faults');
  lap('rest');
  findings.push(await foundByThemselves(world));
  await ageDrafts(world);
  const workers = ['worker-1', 'worker-2'];
  for (const name of workers) {
    await world.programs[name]!.end('SIGTERM');
    await world.programs[name]!.start();
  }
  await everythingAgain(world);
  lap('full sync');
  const seen = await watch.stop();
  if (options.sabotage) {
    // They would repair what they find damaged.
    for (const name of workers) await world.programs[name]!.end('SIGTERM');
    await sabotage(world);
  }
  findings.push(...(await check(world, history)), seen);
  if (options.sabotage) for (const name of workers) await world.programs[name]!.start();
  // The stored tokens work.
  await world.library.admin((admin) => admin.expireTokens());
  findings.push(await syncsWork(world));
  lap('check');
  return { findings, history, took };
}

async function wave(world: World, plan: Plan, number: number): Promise<void> {
  const { content, library } = world;
  const together = Date.now();
  for (const asset of [...content.held.values()]) {
    const change = content.change(asset, number);
    if (change === 'remove') await library.admin((admin) => admin.removeAsset(asset.plan.id));
    else if (change) await library.admin((admin) => admin.changeAsset(asset.plan.id, change));
  }
  for (const planned of plan.assets) {
    if (planned.wave !== number) continue;
    const { upload, later } = content.uploadOf(content.add(planned, together));
    await library.admin(async (admin) => {
      await admin.addAsset(upload);
      if (later) await admin.changeAsset(planned.id, later);
    });
  }
}

async function someRequests(world: World, count: number): Promise<void> {
  const { passed } = world.libraryProxy;
  const [enough, until] = [passed.length + count, Date.now() + latestMs];
  while (passed.length < enough && Date.now() < until) await sleep(20);
}

async function meet(
  world: World,
  fault: PlannedFault,
  history: Happened[],
  tell: (line: string) => void,
): Promise<void> {
  const { kind, details } = fault;
  const happened: Happened = {
    number: fault.number,
    name: kind.name,
    of: kind.of,
    from: Date.now(),
    to: Number.POSITIVE_INFINITY,
  };
  history.push(happened);
  const end = await kind.begin(world, details);
  await sleep(fault.holds);
  await end();
  happened.to = Date.now();
  tell(lineOf(fault, happened.to - happened.from));
}

export function lineOf({ number, kind, details }: PlannedFault, ms?: number): string {
  const facts = Object.entries(details).map(([key, value]) => (typeof value === 'number' ? `${key} ${value}` : value));
  const time = ms === undefined ? '' : `${(ms / 1000).toFixed(1)} s`;
  return `${String(number).padStart(4)}  ${kind.name.padEnd(22)} ${facts.join(', ').padEnd(34)} ${time.padStart(8)}`;
}

/** A grant whose last answer was lost cannot be recovered: its user connects again, as the mirror requests. */
async function reconnect(world: World): Promise<void> {
  // A sync of each connection finds it.
  const seen = await world.query<{ at: Date }>('SELECT now() AS at');
  const until = Date.now() + 60_000;
  for (const { id } of users) {
    for (;;) {
      const [connection] = await world.query<{ status: string; last_sync_at: Date | null }>(
        'SELECT status, last_sync_at FROM connections WHERE user_id = $1',
        [id],
      );
      if (connection?.status === 'disconnected') {
        await world.connect(id);
        break;
      }
      if (connection && (connection.last_sync_at ?? 0) > seen[0]!.at) break;
      if (Date.now() > until) break;
      await sleep(200);
    }
  }
}

/** Waits until nothing is in transfer. @throws with the remaining work */
async function rest(world: World, when: string): Promise<void> {
  const until = Date.now() + restMs;
  for (;;) {
    const open = await world
      .query<{
        id: string;
        state: string;
        reason: object | null;
        transcript_state: string;
        next_at: Date | null;
        waits: number;
      }>(
        `SELECT id, state, reason, transcript_state, thumbnail_state, next_at, waits FROM assets
         WHERE state IN ('pending', 'processing', 'transferring') OR (state = 'mirrored' AND next_at IS NOT NULL)`,
      )
      .catch(() => undefined);
    const syncs = await world
      .query<{ id: string }>("SELECT id FROM syncs WHERE status IN ('waiting', 'running')")
      .catch(() => undefined);
    const dates = await world
      .query("SELECT 1 FROM connections WHERE last_sync_at > now() - interval '20 s'")
      .catch(() => []);
    // A missing transcript is expected for a day.
    const moving = open?.filter(({ id, state }) => {
      const asset = world.content.held.get(id);
      return (
        state !== 'mirrored' ||
        (asset && !asset.removed && !(asset.plan.transcript === null && /video|sound/.test(asset.plan.kind)))
      );
    });
    if (moving?.length === 0 && syncs?.length === 0 && dates.length > 0) return;
    if (Date.now() > until) {
      const some = moving
        ?.slice(0, 5)
        .map((row) => JSON.stringify(row))
        .join('\n');
      throw new Error(`no rest ${when}: ${moving?.length} assets and ${syncs?.length} syncs are on their way\n${some}`);
    }
    await sleep(250);
  }
}

/** Before the full sync: incremental ones have found all assets except those dated back too far, and later changes. */
async function foundByThemselves(world: World): Promise<Finding> {
  const known = new Map(
    (await world.query<{ id: string; state: string }>('SELECT id, state FROM assets')).map((row) => [row.id, row]),
  );
  const problems: string[] = [];
  let [late, failed] = [0, 0];
  for (const { plan, removed } of world.content.held.values()) {
    if (known.get(plan.id)?.state === 'failed') failed++;
    if (known.has(plan.id) || removed) continue;
    if (plan.date.kind === 'late') late++;
    else problems.push(`${plan.id}, dated ${plan.date.kind}, was found by no incremental sync`);
  }
  return {
    what: 'incremental syncs found all uploads within the overlap',
    seen: `${known.size} found; left to the full sync: ${late} dated back too far, ${failed} failed`,
    problems,
  };
}

async function everythingAgain(world: World): Promise<void> {
  const { connections } = await world.api('GET', '/connections');
  for (const { id } of connections) await world.api('POST', `/connections/${id}/resync`, { mode: 'full' });
  await rest(world, 'after the full sync');
}

async function syncsWork(world: World): Promise<Finding> {
  const problems: string[] = [];
  const { connections } = await world.api('GET', '/connections');
  for (const { id, user } of connections) {
    const { syncId } = await world.api('POST', `/connections/${id}/resync`, { mode: 'incremental' });
    const until = Date.now() + 60_000;
    for (;;) {
      const [sync] = await world.query<{ status: string; error: string | null }>(
        'SELECT status, error FROM syncs WHERE id = $1',
        [syncId],
      );
      if (sync?.status === 'done') break;
      if (sync?.status === 'failed' || Date.now() > until) {
        problems.push(`the sync of ${user.id} is ${sync?.status}: ${sync?.error}`);
        break;
      }
      await sleep(100);
    }
  }
  return {
    what: 'the saved tokens work',
    seen: `${connections.length} syncs with refreshed tokens`,
    problems,
  };
}

/** Checks high-water marks and records all the time, if the database answers. */
function watchMarks(world: World) {
  let stopped = false;
  let checks = 0;
  const problems = new Set<string>();
  const watching = (async () => {
    for (; !stopped; await sleep(500)) {
      const found = await readMarks(world).catch(() => undefined);
      if (!found) continue;
      checks++;
      for (const problem of marks(found, world.content.dates, world.content.held, 'on the way').problems)
        problems.add(problem);
    }
  })();
  return {
    async stop(): Promise<Finding> {
      stopped = true;
      await watching;
      return {
        what: 'no high-water mark was ahead of the records during the run',
        seen: `${checks} checks`,
        problems: [...problems],
      };
    },
  };
}
