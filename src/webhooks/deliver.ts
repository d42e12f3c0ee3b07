import { backoff } from '../backoff.ts';
import { every, type Repeated } from '../every.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Delivery } from '../store/events/webhooks.ts';
import type { Store } from '../store/store.ts';
import type { WebhookKind } from '../webhook-kinds.ts';
import { messageOf } from './message.ts';
import type { WebhookSender } from './sender.ts';

/** An event that was not delivered within this time is given up. */
const giveUpMs = 3 * 86_400_000;
const tickMs = 2000;
const atOnce = 4;
/** Longer than one delivery takes at most. */
const leaseMs = 60_000;
/** How long a stop waits for deliveries. Another process repeats those that did not end, after their lease. */
const stopMs = 2000;

export const longestWebhookWait = 6 * 3_600_000;

/** 5 s, 20 s, 80 s, … 6 h. */
export const waitAfter = (attempts: number): number => backoff(attempts - 1, 5000, longestWebhookWait, 4);

export interface WebhookDeps {
  store: Store;
  sealer: Sealer;
  publicUrl: string;
  metrics: Metrics;
  log: Log;
}

/**
 * Delivers events from the database, so that no other work waits for the endpoint. Any number of processes may do this: each
 * delivery is leased to one of them at a time.
 */
export class Webhooks {
  readonly #deps: WebhookDeps;
  readonly #kinds: readonly WebhookKind[];
  readonly #sender: WebhookSender;
  readonly #rounds: Repeated;
  readonly #unsubscribe: () => void;
  #begun = false;
  #failing = false;
  /** The endpoint answered 410: this process sends nothing until it is started again. */
  #gone = false;

  constructor(deps: WebhookDeps, sender: WebhookSender, kinds: readonly WebhookKind[]) {
    this.#deps = deps;
    this.#kinds = kinds;
    this.#sender = sender;
    const failed = (err: unknown) =>
      deps.log.warn({ event: 'webhook.round_failed', err }, 'webhook round failed, will retry');
    this.#rounds = every(tickMs, (signal) => this.#round(signal), { failed, stopMs });
    this.#unsubscribe = deps.store.onEvents(this.#rounds.wake);
  }

  async stop(): Promise<void> {
    this.#unsubscribe();
    await this.#rounds.stop();
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { store, metrics, log } = this.#deps;
    if (!this.#begun) await store.webhooks.begin();
    this.#begun = true;
    while (await store.webhooks.collect(this.#kinds, giveUpMs)) signal.throwIfAborted();
    const givenUp = await store.webhooks.giveUp(giveUpMs);
    if (givenUp > 0) {
      metrics.webhookDeliveries.inc({ result: 'given_up' }, givenUp);
      log.error({ event: 'webhook.given_up', deliveries: givenUp }, 'webhook deliveries given up');
    }
    while (!this.#gone && !signal.aborted) {
      const due = await store.webhooks.lease(atOnce, leaseMs);
      if (due.length === 0) return;
      await Promise.all(due.map((delivery) => this.#deliver(delivery)));
    }
  }

  async #deliver(delivery: Delivery): Promise<void> {
    const { store, metrics, log } = this.#deps;
    const { id, kind, attempts: attempt, connectionId, assetId } = delivery;
    const fields = { webhookId: id, kind, attempt, connectionId, assetId };
    const body = JSON.stringify(await messageOf(this.#deps, delivery));
    const answer = await this.#sender.send({ id, body });
    metrics.webhookDeliveries.inc({ result: answer.delivered ? 'delivered' : 'failed' });
    if (answer.delivered) {
      await store.webhooks.delivered(id);
      log.debug({ event: 'webhook.delivered', ...fields }, 'webhook delivered');
      if (this.#failing) log.info({ event: 'webhook.recovered' }, 'webhook endpoint accepts events again');
      this.#failing = false;
      return;
    }
    const { reason, waitMs = 0 } = answer;
    await store.webhooks.again(id, Math.max(waitAfter(attempt), waitMs), reason);
    if (answer.gone && !this.#gone) {
      this.#gone = true;
      await store.events.add({ kind: 'webhook.gone', data: { reason } });
      log.error(
        { event: 'webhook.gone', ...fields },
        'webhook endpoint gone (410); nothing is sent until the next start',
      );
    } else if (!this.#failing) {
      log.warn({ event: 'webhook.retry_scheduled', ...fields, reason }, 'webhook not delivered, will retry');
    }
    this.#failing = true;
  }
}
