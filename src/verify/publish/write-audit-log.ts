import { every } from '../../floor/every.ts';
import type { Log } from '../../floor/log.ts';
import type { CircuitBreaker } from '../../pacing/circuit-breaker.ts';
import { auditKey } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import { toAuditEntry } from '../../store/operators/audit-entry.ts';
import type { Store } from '../../store/store.ts';
import { putLines } from './put-lines.ts';
import { unusedObjectKey } from './unused-object-key.ts';

export interface WriteAuditLogDeps {
  store: Pick<Store, 'audit'>;
  storage: Storage;
  log: Log;
}

const everyMs = 10 * 60_000;
const retryMs = 300_000;
const pageSize = 1000;

/** Writes the audit log of each day (UTC) into the bucket, soon after its end. One process at a time does so. */
export function startWritingAuditLog(
  deps: WriteAuditLogDeps & { store: Store; breaker: Pick<CircuitBreaker, 'openReason'> },
) {
  const { store, breaker, log } = deps;
  async function writeIfDue(signal: AbortSignal): Promise<void> {
    if (breaker.openReason !== undefined || !(await store.chores.take('audit', retryMs))) return;
    try {
      await writeAuditLog(deps, signal);
    } finally {
      await store.chores.done('audit', everyMs / 2);
    }
  }
  const failed = (err: unknown) =>
    log.warn({ event: 'audit.write_failed', err }, 'audit log of a day not written, will retry');
  // A bucket that does not answer must not delay the shutdown.
  return every(everyMs, writeIfDue, { failed, later: true, stopMs: 1000 });
}

/** Writes all days that are over, have entries, and are not written yet. Returns how many. */
export async function writeAuditLog(deps: WriteAuditLogDeps, signal: AbortSignal): Promise<number> {
  const { store, storage, log } = deps;
  for (let files = 0; ; files++) {
    signal.throwIfAborted();
    const day = await store.audit.nextDay();
    if (day === undefined) return files;
    // After a restored backup, the database may have fewer entries than the file of that day: it is never overwritten.
    const key = await unusedObjectKey(storage, (number) => auditKey(day, number));
    const bytes = await putLines(storage, key, entriesOf(store, day), { signal });
    await store.audit.dayWritten(day);
    log.info({ event: 'audit.written', key, bytes }, 'audit log of a day written');
  }
}

async function* entriesOf(store: WriteAuditLogDeps['store'], day: string) {
  for (let after = 0; ; ) {
    const page = await store.audit.ofDay(day, after, pageSize);
    yield* page.map(toAuditEntry);
    if (page.length < pageSize) return;
    after = page.at(-1)!.id;
  }
}
