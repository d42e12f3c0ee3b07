import { readdirSync, readFileSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { join } from 'node:path';

/** The parts of the program: a sample belongs to the first of its frames, from the innermost on, that is in one of these files. */
const parts: [name: string, files: RegExp][] = [
  ['S3: sign, send, count and sum (`src/storage`)', /(?:dist|src)\/storage\/|@aws-sdk|@smithy/],
  ['source: undici, schemas, links (`src/source`)', /(?:dist|src)\/source\/|\/(?:undici|zod)\//],
  ['PostgreSQL: kysely, pg (`src/store`)', /(?:dist|src)\/store\/|\/(?:kysely|pg|pg-[a-z]+|postgres-[a-z]+)\//],
  ['queue: BullMQ, ioredis', /\/(?:bullmq|ioredis|msgpackr)\//],
];
const collector = 'garbage collection';
const rest = 'decisions, log, metrics, streams, all else';

/** Microseconds on the clock that V8 samples by, which all processes share. */
export const sampledAt = () => Number(process.hrtime.bigint() / 1000n);

/**
 * The share of each part in the time that the main thread of a process worked between two moments (`sampledAt`), from the profile
 * that V8 wrote to `directory` when the process ended (`--cpu-prof`).
 * @throws Error if there is no sample between the moments
 */
export function sharesOf(directory: string, pid: number, from: number, to: number): Map<string, number> {
  const file = readdirSync(directory).find((name) => name.split('.')[3] === String(pid))!;
  const {
    nodes,
    startTime,
    samples = [],
    timeDeltas = [],
  } = JSON.parse(readFileSync(join(directory, file), 'utf8')) as Profiler.Profile;
  const frames = new Map(nodes.map((node) => [node.id, node.callFrame]));
  const callers = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)));
  const found = new Map([...parts.map(([name]) => name), collector, rest].map((name) => [name, 0]));
  let all = 0;
  const partOf = (sample: number): string | undefined => {
    const { functionName } = frames.get(sample)!;
    if (functionName === '(idle)') return undefined;
    if (functionName === '(garbage collector)') return collector;
    for (let id: number | undefined = sample; id !== undefined; id = callers.get(id)) {
      const { url } = frames.get(id)!;
      const part = parts.find(([, files]) => files.test(url));
      if (part) return part[0];
    }
    return rest;
  };
  let at = startTime;
  for (const [i, sample] of samples.entries()) {
    at += timeDeltas[i]!;
    if (at < from || at > to) continue;
    const part = partOf(sample);
    if (!part) continue;
    found.set(part, found.get(part)! + timeDeltas[i]!);
    all += timeDeltas[i]!;
  }
  if (all === 0) {
    throw new Error(
      `${file} has nothing between ${from} and ${to}: ${samples.length} samples from ${startTime} to ${at}`,
    );
  }
  return new Map([...found].map(([part, time]) => [part, time / all]));
}
