import type { Dispatcher } from 'undici';
import type { z } from 'zod';
import { getText, HttpError } from './http.ts';
import {
  type ApiAsset,
  type AssetDetail,
  asset,
  assetAnswer,
  assetsAnswer,
  company,
  meAnswer,
  parseAnswer,
  problemOf,
  project,
  projectsAnswer,
  storable,
  textOf,
  transcriptAnswer,
} from './schemas.ts';

export type LibraryClient = ReturnType<typeof createLibraryClient>;

/** A page of a company's assets, newest first (spec, section 4.6). */
export interface AssetPage {
  assets: ApiAsset[];
  /** Items that break the schema, with the field's name. */
  broken: { problem: string; item: unknown }[];
  /** Undefined on the last page, however the service says so. */
  nextCursor: string | undefined;
  /** The service's own clock, epoch milliseconds. */
  date: number;
}

export interface Me {
  user: { id: string; name: string; email: string };
  companies: { id: string; name: string }[];
  /** One for each entry that could not be read: then a company that is missing is not a company that was lost. */
  problems: string[];
}

export type Transcript =
  | { kind: 'transcript' /** The JSON exactly as served. */; json: string; vtt: string; text: string }
  | { kind: 'no speech' }
  | { kind: 'not yet' };

/**
 * The read API (spec, section 4). Every call takes a `token` and a `signal`, tries a passing fault again, and throws
 * RetryLater (429, 503 with Retry-After), Rejected (the answer breaks its schema), HttpError, or what the network threw.
 */
export function createLibraryClient(options: { apiUrl: string; dispatcher: Dispatcher }) {
  type Call = { token: string; signal: AbortSignal };

  async function get(path: string, what: string, call: Call, accept = 'application/json') {
    return getText(`${options.apiUrl}/api/v1${path}`, {
      what,
      headers: { authorization: `Bearer ${call.token}`, accept },
      dispatcher: options.dispatcher,
      signal: call.signal,
    });
  }

  async function getJson<T extends z.ZodType>(path: string, what: string, call: Call, schema: T) {
    const answer = await get(path, what, call);
    let body: unknown;
    try {
      body = JSON.parse(answer.text);
    } catch (cause) {
      throw new Error(`${what}: the service's answer is not JSON`, { cause });
    }
    return { ...answer, value: parseAnswer(schema, what, body) };
  }

  return {
    /** Who connected, and the companies that can be read now (spec, section 4.4). */
    async me(call: Call): Promise<Me> {
      const { value } = await getJson('/me', 'read /me', call, meAnswer);
      const companies: Me['companies'] = [];
      const problems: string[] = [];
      for (const entry of value.companies) {
        const { data, error } = company.safeParse(entry);
        if (data) companies.push({ id: data.id, name: data.name || data.id });
        else problems.push(`${labelOf(entry)} was skipped: ${problemOf(error)}`);
      }
      const user = { id: value.user.id, name: value.user.name ?? '', email: value.user.email ?? '' };
      return storable({ user, companies, problems });
    },

    /** The projects of a company, as far as they can be read (spec, section 4.5). */
    async listProjects(call: Call & { companyId: string }): Promise<{ id: string; name: string }[]> {
      const path = `/companies/${encodeURIComponent(call.companyId)}/projects`;
      const { value } = await getJson(path, `list the projects of company ${call.companyId}`, call, projectsAnswer);
      const projects = value.projects.map((entry) => project.safeParse(entry));
      return projects.flatMap(({ data }) => (data ? [{ id: data.id, name: data.name || data.id }] : []));
    },

    /** `since`: epoch milliseconds, strictly after. */
    async listAssets(
      call: Call & {
        companyId: string;
        cursor?: string | undefined;
        since?: number | undefined;
        assetType?: string | undefined;
        projectId?: string | undefined;
      },
    ): Promise<AssetPage> {
      const query = new URLSearchParams({ limit: '100' });
      if (call.since !== undefined) query.set('since', String(call.since));
      if (call.assetType !== undefined) query.set('assetType', call.assetType);
      else if (call.projectId !== undefined) query.set('projectId', call.projectId);
      if (call.cursor !== undefined) query.set('cursor', call.cursor);
      const path = `/companies/${encodeURIComponent(call.companyId)}/assets?${query}`;
      const { value, date } = await getJson(path, `list the assets of company ${call.companyId}`, call, assetsAnswer);
      const page: AssetPage = {
        assets: [],
        broken: [],
        nextCursor: value.nextCursor || undefined,
        date: date ?? Date.now(),
      };
      for (const item of value.assets) {
        const read = asset.safeParse(item);
        if (read.success) page.assets.push(read.data);
        else page.broken.push({ problem: problemOf(read.error), item });
      }
      return page;
    },

    /** One asset with fresh signed links (spec, section 4.7). */
    async getAsset(call: Call & { assetId: string }): Promise<AssetDetail> {
      const what = `read asset ${call.assetId}`;
      const { value } = await getJson(`/assets/${encodeURIComponent(call.assetId)}`, what, call, assetAnswer);
      if (value.asset.id !== call.assetId) {
        throw new Error(`${what}: the service answered with another asset, ${JSON.stringify(value.asset.id)}`);
      }
      return value.asset;
    },

    /** The transcript: JSON once, which holds captions and text (spec, section 4.8). */
    async getTranscript(call: Call & { assetId: string }): Promise<Transcript> {
      const path = `/assets/${encodeURIComponent(call.assetId)}/transcript`;
      const what = `read the transcript of asset ${call.assetId}`;
      try {
        const { value, text } = await getJson(`${path}?format=json`, what, call, transcriptAnswer);
        if (value.assetId !== call.assetId) throw new Error(`${what}: the service answered for another asset`);
        if (value.noSpeech === true) return { kind: 'no speech' };
        // Older answers may lack one of the two; then it is asked for by itself.
        const part = async (format: 'vtt' | 'txt') => {
          const answer = await get(
            `${path}?format=${format}`,
            what,
            call,
            format === 'vtt' ? 'text/vtt' : 'text/plain',
          );
          const noSpeech = /json/i.test(answer.contentType) && /"noSpeech"\s*:\s*true/.test(answer.text);
          if (!noSpeech && answer.unbounded) {
            throw new Error(`${what}: nobody says how long the ${format} is, so one that was cut could not be told`);
          }
          const plausible = format === 'vtt' ? /^\uFEFF?WEBVTT/ : /^(?!\s*(<!doctype|<html|\{))/i;
          if (!noSpeech && !plausible.test(answer.text)) throw new Error(`${what}: the answer is not ${format}`);
          return noSpeech ? undefined : answer.text;
        };
        const vtt = value.vtt ?? (await part('vtt'));
        const plain = value.text ?? (await part('txt'));
        if (vtt === undefined || plain === undefined) return { kind: 'no speech' };
        return { kind: 'transcript', json: text, vtt, text: plain };
      } catch (error) {
        if (error instanceof HttpError && error.status === 404) return { kind: 'not yet' };
        throw error;
      }
    },
  };
}

/** A company of `/me` that cannot be read, as people find it: by its id, or else by its name. */
function labelOf(entry: unknown): string {
  const { id, name } = (entry ?? {}) as Record<string, unknown>;
  return `company ${JSON.stringify((textOf(id) ?? textOf(name) ?? '').slice(0, 100))}`;
}
