import { EventSource } from 'eventsource';
import type { EventFilter, MirrorEvent } from './answers.ts';
import { isAway } from './failures.ts';
import { addressOf, notOurs, request, type Service } from './request.ts';

export interface EventHandlers {
  onEvent: (event: MirrorEvent) => void;
  /** The stream was lost, or is open again. */
  onLine: (good: boolean) => void;
}

/**
 * Reports each event as it happens, and misses none: EventSource reconnects by itself. `open` resolves when the stream is
 * open; `end` never resolves, and rejects when asset-mirror refuses, or does not answer at the beginning.
 */
export function followEvents(
  service: Service,
  filter: EventFilter,
  handlers: EventHandlers,
): { open: Promise<void>; end: Promise<never> } {
  const path = addressOf('/events', filter);
  const opened = Promise.withResolvers<void>();
  const ended = Promise.withResolvers<never>();
  // While EventSource waits to reconnect, nothing else keeps this process alive.
  const awake = setInterval(() => {}, 60_000);
  let wasOpen = false;
  const source = new EventSource(`${service.url}/api${path}`, {
    fetch: (_url, { headers, signal }) =>
      request(service, 'GET', path, { headers, signal }).catch((error) => {
        if (!wasOpen || !isAway(error)) fail(error);
        throw error;
      }),
  });
  const fail = (error: Error) => {
    source.close();
    clearInterval(awake);
    ended.reject(error);
  };
  source.addEventListener('open', () => {
    wasOpen = true;
    opened.resolve();
    handlers.onLine(true);
  });
  source.addEventListener('error', ({ code }) => {
    if (source.readyState === source.CLOSED) fail(notOurs(service, code ?? 0));
    else handlers.onLine(false);
  });
  source.addEventListener('message', ({ data }) => handlers.onEvent(JSON.parse(data)));
  return { open: opened.promise, end: ended.promise };
}
