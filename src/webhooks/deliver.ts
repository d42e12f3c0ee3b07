import { setTimeout as sleep } from 'node:timers/promises';
import { reasonOf } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { connectUrl } from '../oauth/authorize.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Delivery } from '../store/events/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { WebhookKind } from '../webhook-kinds.ts';
import type { WebhookSender } from './sender.ts';

/** Whoever is told late is told in a day; whoever cannot be told in three days is not told any more. */
const giveUpMs = 3 * 86_400_000;
const tickMs = 2000;
const atOnce = 4;
/** Longer than sending one takes at most. */
const leaseMs = 60_000;

export const longestWebhookWait = 6 * 3_600_000;

/** 5 s, 20 s, 80 s, … 6 h, each with up to a quarter more. */
export function waitAfter(attempts: number): number {
  return Math.min(5000 * 4 ** (attempts - 1), longestWebhookWait) * (1 + Math.random() / 4);
}

export interface WebhookDeps {
  store: Store;
  sender: WebhookSender;
  sealer: Sealer;
  publicUrl: string;
  kinds: readonly WebhookKind[];
  metrics: Metrics;
  log: Log;
}

/**
 * Tells the endpoint what happened: in its own time, from the records, some at once, so that nothing else ever waits for
 * it. Any number of processes may do this; each delivery is in one's hands at a time.
 */
export function startWebhooks(deps: WebhookDeps) {
  const { store, log, metrics } = deps;
  const stopping = new AbortController();
  const { signal } = stopping;
  let wake = () => {};
  let failing = false;
  /** The endpoint has said that it is gone: this process lets it be until it is started again. */
  let gone = false;

  async function deliver(delivery: Delivery): Promise<void> {
    const { id, kind, attempts } = delivery;
    const fields = {
      webhookId: id,
      kind,
      attempt: attempts,
      connectionId: delivery.connectionId,
      assetId: delivery.assetId,
    };
    const body = JSON.stringify(await messageOf(deps, delivery));
    const answer = await deps.sender
      .send({ id, body })
      .catch((error) => ({ taken: false as const, reason: reasonOf(error), waitMs: undefined, gone: undefined }));
    if (answer.taken) {
      await store.webhooks.taken(id);
      metrics.webhookDeliveries.inc({ result: 'delivered' });
      log.debug(fields, 'webhook delivered');
      if (failing) log.info('the webhook endpoint takes events again');
      failing = false;
      return;
    }
    metrics.webhookDeliveries.inc({ result: 'failed' });
    await store.webhooks.again(id, Math.max(waitAfter(attempts), answer.waitMs ?? 0), answer.reason);
    if (answer.gone && !gone) {
      gone = true;
      await store.events.add({ kind: 'webhook.gone', data: { reason: answer.reason } });
      log.error(fields, 'the webhook endpoint is gone (410); nothing is sent to it until the next start');
    } else if (!failing)
      log.warn({ ...fields, reason: answer.reason }, 'the webhook endpoint does not take an event; it comes back');
    failing = true;
  }

  async function round(): Promise<void> {
    while (await store.webhooks.collect(deps.kinds, giveUpMs)) signal.throwIfAborted();
    const givenUp = await store.webhooks.giveUp(giveUpMs);
    if (givenUp > 0) {
      metrics.webhookDeliveries.inc({ result: 'given_up' }, givenUp);
      log.error({ deliveries: givenUp }, 'webhook deliveries given up');
    }
    while (!gone && !signal.aborted) {
      const due = await store.webhooks.take(atOnce, leaseMs);
      if (due.length === 0) return;
      await Promise.all(due.map(deliver));
    }
  }

  const silence = store.onEvents(() => wake());
  const running = (async () => {
    let begun = false;
    let away = false;
    while (!signal.aborted) {
      try {
        if (!begun) await store.webhooks.begin();
        begun = true;
        await round();
        away = false;
      } catch (err) {
        if (!away && !signal.aborted) log.warn({ err }, 'webhooks are put off; trying on');
        away = true;
      }
      const pause = new AbortController();
      wake = () => pause.abort();
      await sleep(tickMs, undefined, { signal: AbortSignal.any([pause.signal, signal]), ref: false }).catch(() => {});
    }
  })();

  return {
    async stop(): Promise<void> {
      silence();
      stopping.abort(new Error('shutting down'));
      // What is on its way has its lease; whoever comes next sends it again if it was not taken.
      await Promise.race([running, sleep(2000, undefined, { ref: false })]);
      await deps.sender.close();
    },
  };
}

/** The body: what happened, when, and to what. Links to reconnect are made as they are sent, and kept nowhere. */
async function messageOf({ store, sealer, publicUrl }: WebhookDeps, delivery: Delivery) {
  const { kind, at, assetId, data } = delivery;
  const asset = assetId === null ? undefined : await store.assets.get(assetId);
  const connectionId = delivery.connectionId ?? asset?.connectionId ?? null;
  const connection = connectionId === null ? undefined : await store.connections.get(connectionId);
  const reconnect = async () => {
    const { url, expiresAt } = connectUrl(sealer, {
      publicUrl,
      connectionId: connectionId!,
      madeAt: await store.now(),
    });
    return { reconnectUrl: url, reconnectUrlExpiresAt: expiresAt };
  };
  return {
    type: kind,
    timestamp: at.toISOString(),
    data: {
      connectionId,
      ...(connection && { user: { id: connection.userId, name: connection.userName, email: connection.userEmail } }),
      ...(assetId !== null && { assetId, companyId: asset?.companyId ?? null, name: asset?.name ?? null }),
      ...data,
      ...(kind === 'connection.disconnected' && connectionId !== null && (await reconnect())),
    },
  };
}
