import { setTimeout as sleep } from 'node:timers/promises';
import { NamedError } from './errors.ts';

/** The result of `work`, or undefined after `ms`. */
export async function within<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
  const ended = new AbortController();
  const late = sleep(ms, undefined, { signal: ended.signal }).catch(() => undefined);
  return Promise.race([work, late]).finally(() => ended.abort());
}

/** What was asked did not answer in time. */
export class NoAnswer extends NamedError {}

/** The answer to `ask`. @throws NoAnswer after `ms`, also if `ask` ignores its signal, which is aborted then */
export async function answerWithin<T>(ms: number, ask: (late: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController();
  const answer = await within(
    ms,
    ask(late.signal).then((value) => ({ value })),
  );
  if (answer) return answer.value;
  const error = new NoAnswer(`no answer within ${ms / 1000} s`);
  late.abort(error);
  throw error;
}
