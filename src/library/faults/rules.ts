import { z } from 'zod';
import { ENDPOINTS, type Endpoint } from '../requests.ts';

const Count = z.int().nonnegative();

/** What a client may meet in the world, switched on by an endpoint, an asset, a company, or whose token it is. */
export const Rule = z.strictObject({
  endpoint: z.enum([...ENDPOINTS, '*']),
  assetId: z.string().optional(),
  companyId: z.string().optional(),
  /** Requests with an access token of this user. */
  userId: z.string().optional(),
  /** So many matching requests pass first. */
  skip: Count.optional(),
  /** So many after them are hit; without it, all. */
  times: Count.optional(),

  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** Seconds or an HTTP date; the status is 429 unless said otherwise. */
  retryAfter: z.union([z.number(), z.string()]).optional(),
  /** Milliseconds before the request is looked at. */
  latency: Count.optional(),
  /** The connection is closed after so many bytes of the body. */
  cutAfter: Count.optional(),
  /** The cut is a reset, which takes with it what was still on its way. */
  reset: z.boolean().optional(),
  /** No bytes come after so many; the connection stays open. */
  stallAfter: Count.optional(),
  /** The body comes no faster than this. */
  bytesPerSecond: z.int().positive().optional(),
  /** The file is so many bytes shorter than the API says, in a flawless answer. */
  shortBy: Count.optional(),
  longBy: Count.optional(),
  ignoreRange: z.boolean().optional(),
  /** A signed link answers as one that has expired. */
  expireLinks: z.boolean().optional(),
  /** So many redirects before the answer to a signed link. */
  redirect: Count.optional(),
  /** Without Content-Length. */
  chunked: z.boolean().optional(),
  /** gzip, br, deflate and zstd are really applied; another name is only said. */
  contentEncoding: z.string().optional(),
  wrongType: z.boolean().optional(),
  /** The request is carried out and the connection dropped before the answer. */
  dropAnswer: z.boolean().optional(),
  /** How the last page of a listing says that it is the last. */
  nextCursor: z.enum(['absent', 'null', 'empty', 'repeat']).optional(),
});

export type Rule = z.infer<typeof Rule>;
export type Fault = Omit<Rule, 'endpoint' | 'assetId' | 'companyId' | 'userId' | 'skip' | 'times'>;

export type Faults = {
  set(rules: Rule[]): void;
  add(rule: Rule): void;
  rules(): Rule[];
  areThere(): boolean;
  /** Whether a rule asks for a company, so that only then it is looked up. */
  askForCompany(): boolean;
  /** What happens to this request: the effects of every rule that hits it, later rules over earlier ones. */
  hit(request: {
    endpoint: Endpoint;
    assetId?: string | undefined;
    companyId?: string | undefined;
    userId?: string | undefined;
  }): Fault | null;
  /** A redirect ends at the answer with the rule's other effects, without counting as another request. */
  hold(fault: Fault): string;
  held(id: string): Fault | null;
};

export function createFaults(): Faults {
  let active: { rule: Rule; seen: number }[] = [];
  const held: Fault[] = [];
  return {
    set: (rules) => {
      active = rules.map((rule) => ({ rule, seen: 0 }));
    },
    add: (rule) => {
      active.push({ rule, seen: 0 });
    },
    rules: () => active.map(({ rule }) => rule),
    areThere: () => active.length > 0,
    askForCompany: () => active.some(({ rule }) => rule.companyId !== undefined),
    hit(request) {
      let fault: Fault | null = null;
      for (const entry of active) {
        const { endpoint, assetId, companyId, userId, skip = 0, times = Infinity, ...effects } = entry.rule;
        if (endpoint !== '*' && endpoint !== request.endpoint) continue;
        if (assetId !== undefined && assetId !== request.assetId) continue;
        if (companyId !== undefined && companyId !== request.companyId) continue;
        if (userId !== undefined && userId !== request.userId) continue;
        const turn = entry.seen++;
        if (turn >= skip && turn < skip + times) fault = Object.assign(fault ?? {}, effects) as Fault;
      }
      return fault;
    },
    hold: ({ redirect: _, ...fault }) => String(held.push(fault) - 1),
    held: (id) => held[Number(id)] ?? null,
  };
}
