import { type Logger, pino, stdSerializers, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';
import { scrub } from './errors.ts';

/**
 * One line per event, at the boundary, data first: `log.info({ assetId, bytes, ms }, 'asset mirrored')`.
 * Keys in use: connectionId, companyId, assetId, syncId, job, key, bytes, ms, reason, err.
 */
export type Log = Logger;

const secretKeys = ['authorization', 'accessToken', 'refreshToken', 'clientSecret', 'token', 'code', 'url', 'mp4Url'];

/** JSON lines to stdout, or readable ones when `pretty`; errors lose tokens and the queries of links on the way. */
export function createLog(options: { level: string; pretty: boolean; destination?: NodeJS.WritableStream }): Log {
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
      base: { pid: process.pid },
      timestamp: stdTimeFunctions.isoTime,
      formatters: { level: (level) => ({ level }) },
      redact: { paths: secretKeys.flatMap((key) => [key, `*.${key}`]), censor: '…' },
      serializers: { err: (err) => scrubDeep(stdSerializers.errWithCause(err)) },
      hooks: {
        logMethod(args, method) {
          method.apply(this, args.map((arg) => (typeof arg === 'string' ? scrub(arg) : arg)) as typeof args);
        },
      },
    },
    // biome-ignore lint/suspicious/noExplicitAny: pino's stream type is narrower than what it accepts
    ...((destination ? [destination] : []) as [any?]),
  );
}

function scrubDeep(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return scrub(value);
  if (value === null || typeof value !== 'object' || depth > 4) return value;
  const out: Record<string, unknown> = {};
  for (const [key, v] of Object.entries(value)) {
    // Errors of HTTP and S3 clients carry whole requests and answers: their words are enough.
    if (key !== 'raw' && !key.startsWith('$')) out[key] = scrubDeep(v, depth + 1);
  }
  return out;
}
