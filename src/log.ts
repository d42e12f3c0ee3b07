import { AsyncLocalStorage } from 'node:async_hooks';
import { type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';
import { scrub } from './errors.ts';

/**
 * One line per event, at the boundary, data first: `log.info({ assetId, bytes, ms }, 'asset mirrored')`.
 * Keys in use: connectionId, companyId, assetId, syncId, requestId, libraryRequestId, key, bytes, ms, reason, err.
 */
export type Log = Logger;

/** What every line says that is written in the course of some work: which run, asset or request it belongs to. */
const correlated = new AsyncLocalStorage<Record<string, unknown>>();

/** Does the work with these fields on each of its lines, in addition to those of the work around it. */
export function withFields<T>(fields: Record<string, unknown>, work: () => T): T {
  return correlated.run({ ...correlated.getStore(), ...fields }, work);
}

/** The fields of the work that is under way here, for what is told of it later and elsewhere. */
export const fieldsHere = (): Record<string, unknown> => ({ ...correlated.getStore() });

/** Fields whose value is a secret by their name, at whatever depth. */
const secretKey = /(authorization|cookie|password|secret|tokens?|verifier|^url|^mp4Url|^thumbnailUrl)$/i;

/**
 * JSON lines to stdout, or readable ones when `pretty`. Secrets, tokens and the queries of links are skipped of messages,
 * fields, errors and their causes.
 */
export function createLog(options: { level: string; pretty: boolean; destination?: NodeJS.WritableStream }): Log {
  const written = options.pretty ? (text: string) => harmless(scrub(text)) : scrub;
  const destination = options.pretty
    ? pretty({
        colorize: true,
        translateTime: 'SYS:HH:MM:ss',
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
      // An error that gets here is a plain object already.
      serializers: { err: (err) => err, msg: (msg) => (typeof msg === 'string' ? written(msg) : msg) },
    },
    // biome-ignore lint/suspicious/noExplicitAny: pino's stream type is narrower than what it accepts
    ...((destination ? [destination] : []) as [any?]),
  );
}

/** A terminal would obey what others wrote. Line ends stay, for stacks have some. */
const harmless = (text: string) =>
  text.replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/gu, (c) =>
    c === '\n' ? c : `\\u{${c.codePointAt(0)!.toString(16)}}`,
  );

/** `written`: how a text is written. */
function clean(value: unknown, written: (text: string) => string, depth = 0): unknown {
  if (typeof value === 'string') return written(value);
  if (value === null || typeof value !== 'object' || value instanceof Date) return value;
  if (depth > 6) return '…';
  if (Array.isArray(value)) return value.map((item) => clean(item, written, depth + 1));
  if (value instanceof URL || ArrayBuffer.isView(value)) return written(String(value instanceof URL ? value : '…'));
  const out: Record<string, unknown> = {};
  const fields = value instanceof Error ? stdSerializers.errWithCause(value) : value;
  for (const [key, v] of Object.entries(fields)) {
    // Errors of HTTP and S3 clients carry whole requests and answers: their words are enough.
    if (key === 'raw' || key === 'input' || key.startsWith('$')) continue;
    out[key] =
      secretKey.test(key) && (typeof v === 'string' || typeof v === 'object') ? '…' : clean(v, written, depth + 1);
  }
  return out;
}
