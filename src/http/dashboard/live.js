/** @import { MirrorEvent, Status } from './types.d.ts' */
import { addressOf } from './api.js';

/**
 * Follows the events. The browser reconnects by itself, and resumes after the last event.
 * @param {{ onStatus: (status: Status) => void, onEvent: (event: MirrorEvent) => void, onLine: (good: boolean) => void }} handlers
 */
export function follow({ onStatus, onEvent, onLine }) {
  const source = new EventSource(addressOf('/events'));
  source.addEventListener('open', () => onLine(true));
  source.addEventListener('error', () => {
    onLine(false);
    // Refused, for example without a session: the browser does not try again.
    if (source.readyState === EventSource.CLOSED) {
      setTimeout(() => follow({ onStatus, onEvent, onLine }), 5000);
    }
  });
  source.addEventListener('progress', ({ data }) => onStatus(JSON.parse(data)));
  source.addEventListener('message', ({ data }) => onEvent(JSON.parse(data)));
  addEventListener('pagehide', () => source.close(), { once: true });
}
