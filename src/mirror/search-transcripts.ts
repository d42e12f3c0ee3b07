import { concurrently } from '../floor/concurrently.ts';
import { every } from '../floor/every.ts';
import type { Log } from '../floor/log.ts';
import { shortText } from '../floor/short-text.ts';
import type { Timings } from '../floor/timings.ts';
import type { CircuitBreaker } from '../pacing/circuit-breaker.ts';
import { sidecarKeys } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import { throwIfUnavailable } from '../storage/throw-if-unavailable.ts';
import { isUnreachable } from '../store/database/unreachable.ts';
import type { Store } from '../store/store.ts';
import type { UnreadTranscript } from '../store/transcripts/transcripts.ts';
import { passagesOf } from './cues.ts';

interface Deps {
  store: Store;
  storage: Storage;
  log: Log;
  signal: AbortSignal;
}

const chore = 'search-transcripts';
/** Transcripts per page, and how many are read at once. There is a pause between pages. */
const pageSize = 25;
const atOnce = 4;
/** When another process continues after one died; when a transcript that could not be read is tried again. */
const afterDeathMs = 60_000;
const retryMs = 3_600_000;
const hour = 3_600_000;
/** Longer files are not read. */
const mostBytes = 8 * 2 ** 20;

/**
 * With SEARCH_TRANSCRIPTS, one process at a time reads each stored transcript from the bucket, soon after it was stored, and saves its
 * words. Nothing else saves words. So search delays no mirroring, and also works after a rebuild, or if the setting is switched on
 * later. Without the setting, the words are deleted.
 */
export function startSearchingTranscripts({
  config,
  breaker,
  timings,
  ...deps
}: Omit<Deps, 'signal'> & {
  config: { transcripts: { search: boolean } };
  breaker: CircuitBreaker;
  timings: Timings;
}) {
  const { store, log } = deps;
  const failed = (err: unknown) =>
    log.warn({ event: 'transcript.reading_failed', err }, 'transcript not read for search, will retry');
  if (!config.transcripts.search) return every(hour, (signal) => forgetWords(store, signal), { failed });
  const read = async (signal: AbortSignal) => {
    if (breaker.openReason !== undefined || !(await store.chores.take(chore, afterDeathMs))) return 'not due';
    const isMore = await readTranscripts({ ...deps, signal });
    await store.chores.done(chore, isMore ? timings.poll : timings.sweep);
    return undefined;
  };
  // A bucket that does not answer must not delay the shutdown.
  return every(timings.poll, read, { failed, stopMs: 1000 });
}

async function forgetWords(store: Store, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await store.transcripts.forgetWords(pageSize)));
}

/** Reads a page of transcripts. Returns whether there may be more. */
async function readTranscripts(deps: Deps): Promise<boolean> {
  const { store, storage, log, signal } = deps;
  const page = await store.transcripts.unread(pageSize);
  await concurrently(page, atOnce, async (transcript) => {
    signal.throwIfAborted();
    try {
      await readTranscript(deps, transcript);
    } catch (err) {
      if (signal.aborted || isUnreachable(err)) throw err;
      await throwIfUnavailable(storage, err);
      await store.transcripts.readLater(transcript, retryMs);
      const { assetId } = transcript;
      log.warn({ event: 'transcript.reading_failed', assetId, err }, 'transcript not read for search, will retry');
    }
  });
  return page.length === pageSize;
}

/** A transcript that is missing, too long, or no WebVTT has no words. */
async function readTranscript({ store, storage, signal }: Deps, transcript: UnreadTranscript): Promise<void> {
  const { key } = transcript;
  const read = async (key: string) => {
    const body = await storage.get(key, { signal });
    return (body && (await shortText(body, mostBytes))) ?? '';
  };
  const [vtt, json] = await Promise.all([read(sidecarKeys.captions(key)), read(sidecarKeys.transcript(key))]);
  await store.transcripts.saveWords(transcript, { language: languageOf(json), passages: passagesOf(vtt) });
}

const names = new Intl.DisplayNames('en', { type: 'language' });

/** The language of a transcript (spec, section 2.8) as PostgreSQL names it: `german` for `de` or `de-AT`. */
function languageOf(json: string): string {
  try {
    return String(names.of(String(JSON.parse(json).language).split(/[-_]/)[0]!)).toLowerCase();
  } catch {
    return 'simple';
  }
}
