import { setTimeout as sleep } from 'node:timers/promises';
import type { Dispatcher } from 'undici';
import { Disconnected, NamedError, Rejected, RetryLater } from '../floor/errors.ts';
import type { Throttle } from './bandwidth.ts';
import { chunksOf } from './body.ts';
import { closeConnection, isEncoded, type Link, type LinkOptions, requestLink } from './follow-link.ts';
import { throwFor } from './http.ts';
import { type MinRate, RateWatch, TooSlow } from './min-rate.ts';

export interface ResumeOptions extends LinkOptions {
  /** A slower file is given up with TooSlow. Undefined: no minimum. */
  minRate?: MinRate | undefined;
  throttle?: Throttle;
  /** Called when a broken download continues, with the bytes that are not requested again. */
  onResumed?: (bytes: number) => void;
}

/** The server no longer has the version that the download began with. */
export class OtherVersion extends NamedError {}

/** The server did not answer a range request with that range of the same version. */
export class RangeRefused extends OtherVersion {}

/** Bytes from `from` to before `to` of a file; `to` is undefined if its length is unknown, and then nothing can be resumed. */
interface Range {
  link: Link;
  /** The answer that begins at `from`, if there is one already. */
  first?: Dispatcher.ResponseData;
  from: number;
  to: number | undefined;
  /** The length of the whole file. */
  total: number | undefined;
  etag: string | undefined;
  signal: AbortSignal;
}

/** Errors in a row, without a new byte, after which the download fails. */
const mostErrors = 4;

/** The bytes of a range. When the connection breaks, a new request continues at the next byte of the same version. */
export async function* deliver(options: ResumeOptions, range: Range): AsyncGenerator<Buffer> {
  const { link, from, to, etag, signal } = range;
  let offset = from;
  let response = range.first;
  /** Where the current answer ends: a server may send less than was requested. */
  let end = to;
  let errorsInRow = 0;
  let wasBroken = false;
  if (options.minRate) link.rate ??= new RateWatch(options.minRate);
  link.rate?.begin();
  try {
    for (;;) {
      try {
        if (!response) {
          ({ response, end } = await requestRest(options, range, offset, wasBroken));
          if (wasBroken && offset > from) options.onResumed?.(offset - from);
        }
        for await (const chunk of paced(options, range, response)) {
          offset += chunk.length;
          errorsInRow = 0;
          yield chunk;
        }
        if (to === undefined || (offset === to && end === to)) return;
        if (offset !== end) throw new Error(`the download ended at byte ${offset} of ${end}`);
        wasBroken = false;
      } catch (error) {
        wasBroken = true;
        const resumable = to !== undefined && etag !== undefined && offset < to && offset <= end! && !isFinal(error);
        if (signal.aborted || !resumable || ++errorsInRow >= mostErrors) throw error;
        await sleep(errorsInRow * 250, undefined, { signal });
      }
      response = undefined;
    }
  } finally {
    link.rate?.end();
    if (response) closeConnection(response);
  }
}

/** The chunks of an answer, no faster than the limits permit. @throws TooSlow */
async function* paced(options: ResumeOptions, { link, signal }: Range, { body }: Dispatcher.ResponseData) {
  for await (const chunk of chunksOf(body, options.stallMs)) {
    const tooSlow = link.rate?.received(chunk.length);
    if (tooSlow) throw tooSlow;
    link.rate?.pause();
    try {
      await Promise.all([link.throttle?.(chunk.length, signal), options.throttle?.(chunk.length, signal)]);
      yield chunk;
    } finally {
      // The clock must go on even if the reader stops here: other parts of the file share it.
      link.rate?.resume();
    }
  }
}

/** Whether a new request cannot help, or must not be made now. */
function isFinal(error: unknown): boolean {
  return [OtherVersion, RetryLater, Disconnected, Rejected, TooSlow].some((kind) => error instanceof kind);
}

/** Requests the same version from `offset` to `to`, or to an earlier end that the server chooses (RFC 9110, section 15.3.7). */
async function requestRest(
  options: ResumeOptions,
  { link, to, total, etag, signal }: Range,
  offset: number,
  wasBroken: boolean,
) {
  const last = to === total ? '' : to! - 1;
  const response = await requestLink(options, link, signal, { range: `bytes=${offset}-${last}`, 'if-range': etag! });
  const { statusCode, headers } = response;
  const found = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(String(headers['content-range'] ?? ''));
  const [first, end, size] = found ? [Number(found[1]), Number(found[2]) + 1, Number(found[3])] : [];
  const same =
    statusCode === 206 &&
    !isEncoded(response) &&
    first === offset &&
    end! > offset &&
    end! <= to! &&
    size === total &&
    headers.etag === etag;
  if (same) return { response, end };
  closeConnection(response);
  if (statusCode >= 400) throwFor('download', statusCode, headers);
  // 200 is the whole body, never a continuation.
  const problem = wasBroken
    ? `the download was interrupted at byte ${offset}, and the server cannot resume there`
    : `the server did not send the requested version from byte ${offset}`;
  throw new RangeRefused(`${problem} (status ${statusCode})`);
}
