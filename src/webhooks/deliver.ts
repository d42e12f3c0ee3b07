import { setTimeout as sleep } from 'node:timers/promises';
import { backoff } from '../floor/backoff.ts';
import { every, type Repeated } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import { environmentEndpoint } from '../floor/webhook-kinds.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Endpoint } from '../store/events/endpoints.ts';
import { shownAddress } from '../store/events/webhook-address.ts';
import type { Delivery } from '../store/events/webhooks.ts';
import type { Store } from '../store/store.ts';
import { messageOf } from './message.ts';
import type { Target, WebhookSender } from './sender.ts';
import { type EnvironmentWebhook, targetOf } from './target.ts';

/** An event that was not delivered within this time is given up, at most about an hour later (`giveUp`). */
const giveUpMs = 3 * 86_400_000;
const tickMs = 2000;
const trimMs = 60_000;
/** After this time without WEBHOOK_URL in any process, its endpoint is removed. */
const unseenMs = 10 * 60_000;
/** Messages to one endpoint at once, in one process. */
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
  sender: WebhookSender;
  environment: EnvironmentWebhook;
  publicUrl: string;
  metrics: Metrics;
  log: Log;
}

/**
 * Delivers events from the database, so that no other work waits for an endpoint, and no endpoint for another one. Any number of
 * processes may do this: each delivery is leased to one of them at a time.
 */
export class Webhooks {
  readonly #deps: WebhookDeps;
  readonly #rounds: Repeated;
  readonly #unsubscribe: () => void;
  /** How many messages this process is sending to an endpoint. */
  readonly #sending = new Map<string, number>();
  readonly #work = new Set<Promise<void>>();
  /** The endpoints that have not accepted the last message of this process. */
  readonly #failing = new Set<string>();
  #begun = false;
  #trimmedAt = Number.NEGATIVE_INFINITY;

  constructor(deps: WebhookDeps) {
    this.#deps = deps;
    const failed = (err: unknown) =>
      deps.log.warn({ event: 'webhook.round_failed', err }, 'waiting webhook messages not sent, will retry');
    this.#rounds = every(tickMs, (signal) => this.#round(signal), { failed, stopMs });
    this.#unsubscribe = deps.store.onEvents(this.#rounds.wake);
  }

  async stop(): Promise<void> {
    this.#unsubscribe();
    const late = sleep(stopMs, undefined, { ref: false });
    await this.#rounds.stop();
    await Promise.race([Promise.all(this.#work), late]);
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { store, metrics, log } = this.#deps;
    if (!this.#begun) await this.#begin();
    while (await store.webhooks.collect(giveUpMs)) signal.throwIfAborted();
    for (const { endpointId, kind, count } of await store.webhooks.giveUp(giveUpMs)) {
      metrics.webhookDeliveries.inc({ result: 'given_up', endpoint: endpointId }, count);
      log.error({ event: 'webhook.given_up', endpointId, kind, deliveries: count }, 'webhook deliveries given up');
    }
    if (performance.now() > this.#trimmedAt + trimMs) {
      await store.webhooks.trim();
      await this.#renewEnvironment();
      this.#trimmedAt = performance.now();
    }
    for (const id of await store.webhooks.endpointsDue()) {
      for (let n = this.#sending.get(id) ?? 0; n < atOnce && !signal.aborted; n++) this.#start(id, signal);
    }
  }

  #start(endpointId: string, signal: AbortSignal): void {
    this.#sending.set(endpointId, (this.#sending.get(endpointId) ?? 0) + 1);
    const work = this.#sendAll(endpointId, signal).finally(() => {
      this.#work.delete(work);
      this.#sending.set(endpointId, this.#sending.get(endpointId)! - 1);
    });
    this.#work.add(work);
  }

  /** Enables the endpoint of WEBHOOK_URL when a process starts, even if the endpoint answered 410 before. */
  async #begin(): Promise<void> {
    const { store, environment } = this.#deps;
    await store.webhooks.begin();
    if (environment.url !== undefined) {
      const kinds = environment.events;
      const url = shownAddress(environment.url);
      const values = { url, kinds, sealed: null, description: null, filters: {}, enabled: true };
      await store.endpoints.save(environmentEndpoint, values);
    }
    this.#begun = true;
  }

  /** Removes the endpoint of WEBHOOK_URL if no process has had it for a while: during an update, some processes may not have it. */
  async #renewEnvironment(): Promise<void> {
    const { store, environment, log } = this.#deps;
    if (environment.url !== undefined) {
      // Another process may have removed it while this one could not reach the database.
      if (!(await store.endpoints.markSeen(environmentEndpoint))) this.#begun = false;
    } else if (await store.endpoints.removeUnseen(environmentEndpoint, unseenMs)) {
      log.warn(
        { event: 'webhook.endpoint_removed', endpointId: environmentEndpoint },
        'webhook endpoint removed: WEBHOOK_URL is no longer set',
      );
    }
  }

  /** Sends what is due for an endpoint, one message after the other. */
  async #sendAll(endpointId: string, signal: AbortSignal): Promise<void> {
    const { store, log } = this.#deps;
    try {
      while (!signal.aborted) {
        // Each time, because an operator may have changed it.
        const endpoint = await store.endpoints.get(endpointId);
        const target = endpoint && this.#targetOf(endpoint);
        if (!target) return;
        const delivery = await store.webhooks.lease(endpointId, leaseMs);
        if (!delivery) return;
        // Another process may have another WEBHOOK_URL, so the stored address may not be the one that is used.
        await this.#deliver({ ...endpoint, url: shownAddress(target.url) }, target, delivery);
      }
    } catch (err) {
      log.warn({ event: 'webhook.round_failed', endpointId, err }, 'waiting webhook messages not sent, will retry');
    }
  }

  /** Undefined: WEBHOOK_URL is not set in this process, or the secrets cannot be decrypted, which is logged once. */
  #targetOf(endpoint: Endpoint): Target | undefined {
    try {
      return targetOf(endpoint, this.#deps);
    } catch (err) {
      const { id: endpointId } = endpoint;
      if (!this.#failing.has(endpointId)) {
        this.#deps.log.error(
          { event: 'webhook.failed', endpointId, err },
          'webhook endpoint cannot be used, will retry',
        );
      }
      this.#failing.add(endpointId);
      return undefined;
    }
  }

  async #deliver(endpoint: Endpoint, target: Target, delivery: Delivery): Promise<void> {
    const endpointId = endpoint.id;
    const { store, sender, metrics, log } = this.#deps;
    const { id, kind, attempts: attempt, connectionId, assetId } = delivery;
    const fields = { endpointId, webhookId: id, kind, attempt, connectionId, assetId };
    const body = JSON.stringify(await messageOf(this.#deps, delivery));
    const answer = await sender.send(target, { id, body });
    metrics.webhookDeliveries.inc({ result: answer.delivered ? 'delivered' : 'failed', endpoint: endpointId });
    const { status, ms } = answer;
    if (answer.delivered) {
      await store.webhooks.attempted(delivery, { status, ms });
      log.debug({ event: 'webhook.delivered', ...fields }, 'webhook delivered');
      if (this.#failing.delete(endpointId)) {
        log.info({ event: 'webhook.recovered', endpointId }, 'webhook endpoint accepts events again');
      }
      return;
    }
    const { reason, waitMs = 0, gone } = answer;
    await store.webhooks.attempted(delivery, {
      status,
      ms,
      error: reason,
      waitMs: Math.max(waitAfter(attempt), waitMs),
    });
    if (gone && (await store.endpoints.markGone(endpoint, reason))) {
      log.error(
        { event: 'webhook.gone', ...fields },
        'webhook endpoint gone (410), events wait until it is enabled again',
      );
    } else if (!this.#failing.has(endpointId)) {
      log.warn({ event: 'webhook.retry_scheduled', ...fields, reason }, 'webhook not delivered, will retry');
    }
    this.#failing.add(endpointId);
  }
}
