import { PassThrough } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { reasonOf } from '../floor/errors.ts';

/** At most one progress line per `everyMs`; at least one per `beatMs`, so that the connection stays open. */
const everyMs = 500;
const beatMs = 15_000;

/**
 * Answers with lines of JSON: `{progress}` at intervals, at the end `{result}` or `{error}`.
 * Closing the connection stops the work, and so does `stop`.
 */
export function streamWork<Progress, Result>(
  reply: FastifyReply,
  stop: AbortSignal,
  work: (options: { signal: AbortSignal; report: (progress: Progress) => void }) => Promise<Result>,
): FastifyReply {
  const lines = new PassThrough();
  const gone = new AbortController();
  lines.on('close', () => gone.abort(new Error('the connection was closed')));
  const line = (value: object) => {
    if (!lines.destroyed && !lines.writableEnded) lines.write(`${JSON.stringify(value)}\n`);
  };
  let last = Number.NEGATIVE_INFINITY;
  let newest: Progress | undefined;
  const report = (progress: Progress) => {
    newest = progress;
    if (performance.now() - last < everyMs) return;
    last = performance.now();
    line({ progress });
  };
  const beat = setInterval(() => line({ progress: newest ?? null }), beatMs);
  void work({ signal: AbortSignal.any([stop, gone.signal]), report })
    .then(
      (result) => line({ result }),
      (error) => line({ error: { detail: reasonOf(error), stopping: stop.aborted } }),
    )
    .finally(() => {
      clearInterval(beat);
      lines.end();
    });
  return reply.type('application/x-ndjson').header('cache-control', 'no-store').send(lines);
}
