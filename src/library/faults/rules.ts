import { z } from 'zod';
import { ENDPOINTS, type Endpoint } from '../requests.ts';

const Count = z.int().nonnegative();

/** Which requests a fault affects, and how. */
export const Rule = z.strictObject({
  endpoint: z.enum([...ENDPOINTS, '*']),
  assetId: z.string().optional(),
  companyId: z.string().optional(),
  /** The user of the access token. */
  userId: z.string().optional(),
  /** This many matching requests are not affected. */
  skip: Count.optional(),
  /** This many requests after them are affected. Default: all. */
  times: Count.optional(),

  status: z.int().min(200).max(599).optional(),
  body: z.unknown().optional(),
  headers: z.record(z.string(), z.string()).optional(),
  /** Seconds or an HTTP date. The default status is 429. */
  retryAfter: z.union([z.number(), z.string()]).optional(),
  /** Milliseconds before the request is handled. */
  latency: Count.optional(),
  /** The connection closes after this many bytes of the body. */
  cutAfter: Count.optional(),
  /** The connection is reset instead: bytes in transit are lost. */
  reset: z.boolean().optional(),
  /** The body stops after this many bytes. The connection stays open. */
  stallAfter: Count.optional(),
  bytesPerSecond: z.int().positive().optional(),
  /** The file is this many bytes shorter than the API says. The answer itself is correct. */
  shortBy: Count.optional(),
  longBy: Count.optional(),
  ignoreRange: z.boolean().optional(),
  /** Signed links answer as if they had expired. */
  expireLinks: z.boolean().optional(),
  /** The number of redirects before a signed link answers. */
  redirect: Count.optional(),
  /** No Content-Length. */
  chunked: z.boolean().optional(),
  /** gzip, br, deflate and zstd are applied. Any other name is only a header. */
  contentEncoding: z.string().optional(),
  wrongType: z.boolean().optional(),
  /** The request is carried out, then the connection closes without an answer. */
  dropAnswer: z.boolean().optional(),
  /** How the last page of a listing says that it is the last. */
  nextCursor: z.enum(['absent', 'null', 'empty', 'repeat']).optional(),
});

export type Rule = z.infer<typeof Rule>;
export type Fault = Omit<Rule, 'endpoint' | 'assetId' | 'companyId' | 'userId' | 'skip' | 'times'>;

/** The properties of a request that rules select by. */
export type Subject = {
  endpoint: Endpoint;
  assetId?: string | undefined;
  companyId?: string | undefined;
  userId?: string | undefined;
};

/** The active fault rules. */
export class Faults {
  #rules: { rule: Rule; matches: number }[] = [];
  readonly #redirected: Fault[] = [];

  set(rules: Rule[]): void {
    this.#rules = rules.map((rule) => ({ rule, matches: 0 }));
  }

  add(rule: Rule): void {
    this.#rules.push({ rule, matches: 0 });
  }

  rules(): Rule[] {
    return this.#rules.map(({ rule }) => rule);
  }

  get isEmpty(): boolean {
    return this.#rules.length === 0;
  }

  /** Whether any rule selects by company, which has to be looked up first. */
  get useCompany(): boolean {
    return this.#rules.some(({ rule }) => rule.companyId !== undefined);
  }

  /** Counts a request, and returns the effects of all rules on it. Later rules override earlier ones. */
  next(subject: Subject): Fault | null {
    let fault: Fault | null = null;
    for (const entry of this.#rules) {
      const { endpoint, assetId, companyId, userId, skip = 0, times = Infinity, ...effects } = entry.rule;
      if (endpoint !== '*' && endpoint !== subject.endpoint) continue;
      if (assetId !== undefined && assetId !== subject.assetId) continue;
      if (companyId !== undefined && companyId !== subject.companyId) continue;
      if (userId !== undefined && userId !== subject.userId) continue;
      const number = entry.matches++;
      if (number >= skip && number < skip + times) fault = Object.assign(fault ?? {}, effects) as Fault;
    }
    return fault;
  }

  /** Saves the effects, except for the redirects, for the request at the end of them. Returns their id. */
  saveRedirected({ redirect: _, ...fault }: Fault): string {
    return String(this.#redirected.push(fault) - 1);
  }

  redirected(id: string): Fault | null {
    return this.#redirected[Number(id)] ?? null;
  }
}
