import { networkProblem } from './network-problem.ts';
import type { AskedWait, Reason } from './reason-codes.ts';
import { renderReason } from './reasons.ts';

/**
 * Errors are classified once, where they occur; workers decide by class alone. Everything else (network, 5xx, database
 * away) is an ordinary Error and is retried with backoff.
 */

/** An error with the name of its class. */
export class NamedError extends Error {
  override readonly name: string = this.constructor.name;
}

/** An error that the mirror recognized. It is retried like any other error. */
export class KnownError extends NamedError {
  readonly reason: Reason;

  constructor(reason: Reason, options?: ErrorOptions) {
    super(renderReason(reason), options);
    this.reason = reason;
  }
}

/** Nothing is wrong: try again after `waitMs`. Spends no attempt. */
export class RetryLater extends KnownError {
  readonly waitMs: number;
  /** `connection`: all its requests wait: the library asked for it (429, 503 with Retry-After), or no token can be used. */
  readonly scope: 'asset' | 'connection';

  constructor(reason: Reason, waitMs: number, options: { scope?: 'asset' | 'connection'; cause?: unknown } = {}) {
    super(reason, { cause: options.cause });
    this.waitMs = waitMs;
    this.scope = options.scope ?? 'asset';
  }
}

/**
 * The longest time until something is tried again, in ms. A longer Retry-After is shortened to it: one that was meant in
 * milliseconds would stop everything for weeks.
 */
export const longestWait = 3_600_000;

/** The longest wait of an asset that the library keeps asking to wait, in ms. */
export const longestRepeatedWait = 2 * longestWait;

/**
 * How long a Retry-After header asks to wait (RFC 9110, section 10.2.3): seconds, or until a date by the clock of the
 * answer's `date`. Undefined for an invalid header.
 */
export function retryAfter(header: unknown, date?: unknown): { waitMs: number; asked: AskedWait } | undefined {
  const value = String(header ?? '').trim();
  const ms = /^\d+(\.\d+)?$/.test(value) ? Number(value) * 1000 : httpDate(value) - (httpDate(date) || Date.now());
  if (Number.isNaN(ms)) return undefined;
  const said = Math.max(ms, 0);
  const wait = Math.min(said, longestWait);
  return {
    waitMs: withMargin(wait),
    asked: said > wait ? { askedMs: Math.min(said, Number.MAX_SAFE_INTEGER), retryInMs: wait } : { askedMs: said },
  };
}

/** A wait with some jitter added, so that callers do not all retry at once. */
export function withMargin(wait: number): number {
  return wait + 50 + Math.random() * Math.min(wait / 4, 10_000);
}

/** A date in one of the formats of RFC 9110, section 5.6.7, as epoch milliseconds; NaN for any other text. */
function httpDate(text: unknown): number {
  const value = String(text ?? '');
  if (!/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? /i.test(value)) return Number.NaN;
  return Date.parse(/GMT$/.test(value) ? value : `${value} GMT`);
}

/** The user ended the grant: the library answered `invalid_grant` to the connection's current refresh token (spec, section 7). */
export class Disconnected extends NamedError {}

/** Work was stopped from outside; `message` says why. */
export class Interrupted extends NamedError {}

/** Another process has taken over what this one had leased, or may do so: this one must write nothing more. */
export class LeaseLost extends Interrupted {
  constructor(leased: string) {
    super(`this process has lost the lease of ${leased}`);
  }
}

/** A consent counts no more: its user connected again, or an operator disconnected the user, after it. */
export class Superseded extends NamedError {
  constructor() {
    super('a newer consent or a disconnect has superseded this one');
  }
}

/** Can never work as it is: the asset fails at once. */
export class Rejected extends KnownError {}

/** The store has archived an object: it exists, and cannot be read before it is restored there. */
export class Archived extends KnownError {
  constructor(options?: ErrorOptions) {
    super({ code: 'archived' }, options);
  }
}

/** What is wrong, and what to do about it. */
export interface Diagnosis {
  found: string;
  remedy: string;
}

/** The bucket accepts nothing at present (full, missing, wrong keys): all assets wait, and none fails. */
export class StorageUnavailable extends NamedError {
  /** `object`: only this object is not accepted at present. It waits; the others continue. */
  readonly scope: 'all' | 'object';
  /** The message in its parts, if it has a remedy. */
  readonly diagnosis: Diagnosis | undefined;

  constructor(
    message: string,
    options: { scope?: 'all' | 'object'; diagnosis?: Diagnosis | undefined; cause?: unknown } = {},
  ) {
    super(message, { cause: options.cause });
    this.scope = options.scope ?? 'all';
    this.diagnosis = options.diagnosis;
  }
}

/** Another process uses the directory, which only one process may use at a time. */
export class InUse extends NamedError {}

/** A wrong or missing setting. `problems`: one sentence each, `remedy` is the common solution. */
export class ConfigurationError extends NamedError {
  readonly problems: readonly string[];
  readonly remedy: string | undefined;

  constructor(problems: readonly string[], remedy?: string) {
    super(problems.join('\n'));
    this.problems = problems;
    this.remedy = remedy;
  }
}

/** Why something failed, to be stored; without secrets (see `redact`). */
export function toReason(error: unknown): Reason {
  return error instanceof KnownError ? storableReason(error.reason) : { code: 'error', text: reasonOf(error) };
}

const storableReason = (reason: Reason): Reason =>
  JSON.parse(JSON.stringify(reason), (_, value) => (typeof value === 'string' ? storableText(value) : value));

/** Short and without secrets. PostgreSQL stores no NUL, and no half of a surrogate pair, which the cut may leave. */
export const storableText = (text: string) => redact(text).slice(0, 500).replaceAll('\0', '').toWellFormed();

/** The message of an error and of its causes, in one line and without secrets (see `redact`), at most 500 characters. */
export const reasonOf = (error: unknown): string => storableText(fullReasonOf(error));

/** The same, of any length. */
export function fullReasonOf(error: unknown): string {
  const parts: string[] = [];
  for (const e of withCauses(error)) {
    const message = messageOf(e);
    if (message && !saysNothing.has(message) && !parts.some((part) => part.includes(message))) parts.push(message);
  }
  return redact(parts.join(': ')) || 'unknown error';
}

/** An error and what caused it. */
export function* withCauses(error: unknown): Generator<unknown> {
  for (let e = error, depth = 0; e !== undefined && e !== null && depth < 5; depth++) {
    yield e;
    e = e instanceof Error ? e.cause : undefined;
  }
}

/** Adds the setting with the address that was tried, so that the message can say what to correct. */
export function namingSetting<E>(error: E, setting: string): E {
  return networkProblem(error) ? (Object.assign(error as object, { setting }) as E) : error;
}

/** The diagnosis of an error or of one of its causes; undefined: none has one. */
export function diagnosisOf(error: unknown): Diagnosis | undefined {
  for (const e of withCauses(error)) {
    const diagnosis = e instanceof StorageUnavailable ? e.diagnosis : unreachable(e);
    if (diagnosis) return diagnosis;
  }
  return undefined;
}

/** A failed connection to the address in a setting, see `namingSetting`. */
function unreachable(e: unknown): Diagnosis | undefined {
  const problem = networkProblem(e);
  const { setting } = (e ?? {}) as { setting?: string };
  return problem && setting ? { found: problem.found, remedy: problem.remedy(setting) } : undefined;
}

/** Messages of the AWS SDK for an answer without a message. */
const saysNothing = new Set(['UnknownError', 'Unknown']);

function messageOf(e: unknown): string {
  if (!(e instanceof Error)) return String(e);
  const known = unreachable(e);
  if (known) return `${known.found}; ${known.remedy}`;
  const problem = networkProblem(e);
  if (problem) return problem.found;
  if (e instanceof AggregateError && e.message === '') return e.errors.map(messageOf).join(', ');
  return e.message || e.name;
}

/** Removes what must never be written anywhere: tokens (spec, section 2.2) and ours, credentials in addresses, queries of links. */
export function redact(text: string): string {
  return text
    .replace(/svc[a-z]_[\w.~+/=-]+/g, 'svc*_…')
    .replace(/am_[0-9a-f]{8,}/g, 'am_…')
    .replace(/\b(Bearer|Basic) +[\w.~+/=-]+/gi, '$1 …')
    .replace(/:\/\/[^\s/?#]+@/g, '://…@')
    .replace(/[^\s"'<>]+/g, withoutQuery);
}

/** Removes query and fragment from an address. One regular expression for all would take quadratic time. */
function withoutQuery(word: string): string {
  const address = word.indexOf('://');
  if (address === -1) return word;
  const query = word.slice(address).search(/[?#]/);
  return query === -1 ? word : `${word.slice(0, address + query)}?…`;
}
