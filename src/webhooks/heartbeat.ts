import { Agent, request } from 'undici';
import { namingSetting } from '../floor/errors.ts';
import { every } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import { version } from '../floor/version.ts';
import { within } from '../floor/within.ts';
import type { Store } from '../store/store.ts';

const everyMs = 60_000;
const timeoutMs = 15_000;

export interface HeartbeatDeps {
  store: Store;
  log: Log;
  /** Checks the bucket; the result is why it cannot be used, or undefined. */
  bucketTrouble: () => Promise<string | undefined>;
  /** HEARTBEAT_URL. */
  url: string;
  /** SYNC_INTERVAL in ms. */
  syncInterval: number;
}

/**
 * Every minute, one process calls HEARTBEAT_URL if every active connection is synced in time and the bucket works. Otherwise it
 * sends the reason to HEARTBEAT_URL/fail, as healthchecks.io expects. If no call arrives, no process of the mirror runs.
 */
export function startHeartbeat(deps: HeartbeatDeps, interval = everyMs) {
  const agent = new Agent({ connect: { timeout: timeoutMs }, headersTimeout: timeoutMs, bodyTimeout: timeoutMs });
  const failed = (err: unknown) =>
    deps.log.warn({ event: 'heartbeat_url.failed', err }, 'heartbeat not accepted, will retry');
  async function beat(stop: AbortSignal): Promise<'not due' | undefined> {
    // Less than the interval: a timer that fires a moment early must still find the next call due.
    if (!(await deps.store.chores.take('heartbeat', interval * 0.9, { mostMs: interval }))) return 'not due';
    await call(deps, agent, stop);
    return undefined;
  }
  const beating = every(interval, beat, { failed, stopMs: 1000 });
  return {
    async stop(): Promise<void> {
      await beating.stop();
      await agent.destroy();
    },
  };
}

async function call(deps: HeartbeatDeps, dispatcher: Agent, stop: AbortSignal): Promise<void> {
  const problem = (await bucketProblem(deps)) ?? (await lateConnections(deps));
  const address = new URL(deps.url);
  if (problem !== undefined) address.pathname = `${address.pathname.replace(/\/$/, '')}/fail`;
  const { statusCode, body } = await request(address, {
    method: 'POST',
    headers: { 'content-type': 'text/plain; charset=utf-8', 'user-agent': `asset-mirror/${version}` },
    body: problem ?? '',
    dispatcher,
    signal: AbortSignal.any([stop, AbortSignal.timeout(timeoutMs)]),
  }).catch((error) => {
    throw namingSetting(error, 'HEARTBEAT_URL');
  });
  await body.dump({ limit: 64 * 1024 }).catch(() => {});
  if (statusCode < 200 || statusCode > 299) throw new Error(`HEARTBEAT_URL answered ${statusCode}`);
}

async function bucketProblem({ bucketTrouble }: HeartbeatDeps): Promise<string | undefined> {
  const found = await within(
    timeoutMs,
    bucketTrouble().then((reason) => ({ reason })),
  );
  return found ? found.reason : 'the bucket does not answer';
}

async function lateConnections({ store, syncInterval }: HeartbeatDeps): Promise<string | undefined> {
  const late = await store.connections.late(syncInterval);
  if (late.length === 0) return undefined;
  const ids = late.slice(0, 5).join(', ');
  return `not synced in time: ${late.length} ${late.length === 1 ? 'connection' : 'connections'}: ${ids}`;
}
