import { AsyncLocalStorage } from 'node:async_hooks';
import { pino, stdSerializers, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';
import { redact } from './errors.ts';

/**
 * One line per event, at the boundary, data first: `log.info({ event: 'asset.mirrored', assetId, bytes, ms }, 'asset mirrored')`.
 * `event` is a stable name, `noun.past_participle`; docs/reference/log-events.md lists all of them.
 * Common keys: event, connectionId, companyId, assetId, syncId, requestId, libraryRequestId, key, bytes, ms, reason, err.
 */
export type Log = Record<
  'fatal' | 'error' | 'warn' | 'info' | 'debug',
  (fields: { event: `${string}.${string}`; [key: string]: unknown }, message: string) => void
>;

/** Fields of each line that is written during some work: the sync, asset or request it belongs to. */
const correlated = new AsyncLocalStorage<Record<string, unknown>>();

/** Does the work with these fields on each of its log lines, in addition to the fields of the surrounding work. */
export function withFields<T>(fields: Record<string, unknown>, work: () => T): T {
  return correlated.run({ ...correlated.getStore(), ...fields }, work);
}

/** The log fields of the current work, for lines that are written later outside its context. */
export const fieldsHere = (): Record<string, unknown> => ({ ...correlated.getStore() });

/** Names of fields that contain secrets, at any depth. */
const secretKey = /(authorization|cookie|password|secret|tokens?|verifier|^Token-\d+|^url|^mp4Url|^thumbnailUrl)$/i;

/**
 * JSON lines to stdout, or readable ones when `pretty`. Secrets, tokens and the queries of links are removed from messages,
 * fields, errors and their causes.
 */
export function createLog(options: { level: string; pretty: boolean; destination?: NodeJS.WritableStream }): Log {
  const written = options.pretty ? (text: string) => harmless(redact(text)) : redact;
  const destination = options.pretty
    ? pretty({
        colorize: true,
        translateTime: 'SYS:yyyy-mm-dd HH:MM:ss',
        ignore: 'pid,hostname',
        destination: options.destination ?? 1,
      })
    : options.destination;
  return pino(
    {
      level: options.level,
      mixin: fieldsHere,
      base: { pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: {
        level: (level) => ({ level }),
        log: (fields) => clean(fields, written) as Record<string, unknown>,
      },
      // `clean` has turned errors into plain objects.
      serializers: { err: (err) => err, msg: (msg) => (typeof msg === 'string' ? written(msg) : msg) },
    },
    // biome-ignore lint/suspicious/noExplicitAny: pino's stream type is narrower than what it accepts
    ...((destination ? [destination] : []) as [any?]),
  );
}

/** Escapes control characters, which a terminal would obey. Line ends stay, because stacks have them. */
const harmless = (text: string) =>
  text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, (c) =>
    c === '\n' ? c : `\\u{${c.codePointAt(0)!.toString(16)}}`,
  );

/**
 * Errors of HTTP and S3 clients contain whole requests and answers; those of pg, the whole client. A refused signature comes with
 * the signed headers, and one of these may be a session token.
 */
const omitted = new Set(['raw', 'input', 'client', 'CanonicalRequest', 'CanonicalRequestBytes']);

function clean(value: unknown, written: (text: string) => string, depth = 0): unknown {
  if (typeof value === 'string') return written(value);
  if (value === null || typeof value !== 'object' || value instanceof Date) return value;
  if (depth > 6) return '…';
  if (Array.isArray(value)) return value.map((item) => clean(item, written, depth + 1));
  if (value instanceof URL || ArrayBuffer.isView(value)) return written(String(value instanceof URL ? value : '…'));
  const out: Record<string, unknown> = {};
  const fields = value instanceof Error ? stdSerializers.errWithCause(value) : value;
  for (const [key, v] of Object.entries(fields)) {
    if (omitted.has(key) || key.startsWith('$')) continue;
    out[key] =
      secretKey.test(key) && (typeof v === 'string' || typeof v === 'object') ? '…' : clean(v, written, depth + 1);
  }
  return out;
}
