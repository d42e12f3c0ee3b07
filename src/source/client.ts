import { type Dispatcher, request } from 'undici';
import type { z } from 'zod';
import { namingSetting } from '../floor/errors.ts';
import { neverSent } from '../floor/network-problem.ts';
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

/** A page of a company's assets, newest first (spec, section 4.6). */
export interface AssetPage {
  assets: ApiAsset[];
  /** Items that break the schema, with the field's name. */
  broken: { problem: string; item: unknown }[];
  /** Undefined on the last page, for any form of its end. */
  nextCursor: string | undefined;
  /** The library's clock, epoch milliseconds. */
  date: number;
}

export interface Me {
  user: { id: string; name: string; email: string };
  companies: { id: string; name: string }[];
  /** One for each unreadable entry: a company that is missing then may still be readable. */
  problems: string[];
}

export type Transcript =
  | { kind: 'transcript' /** The JSON exactly as served. */; json: string; vtt: string; text: string }
  | { kind: 'no speech' }
  | { kind: 'not yet' };

/** How long `reach` waits for an answer. */
const reachMs = 10_000;

interface Call {
  token: string;
  signal: AbortSignal;
}
interface ListAssetsCall extends Call {
  companyId: string;
  cursor?: string | undefined;
  /** Epoch milliseconds; only assets that are strictly newer. */
  since?: number | undefined;
  assetType?: string | undefined;
  projectId?: string | undefined;
}

/**
 * The read API (spec, section 4). Every call takes a `token` and a `signal`, retries temporary errors, and throws
 * RetryLater (429, 503 with Retry-After), Rejected (the answer breaks the API schema), HttpError, or the network's error.
 */
export class LibraryClient {
  readonly #apiUrl: string;
  readonly #dispatcher: Dispatcher;

  constructor({ apiUrl, dispatcher }: { apiUrl: string; dispatcher: Dispatcher }) {
    this.#apiUrl = apiUrl;
    this.#dispatcher = dispatcher;
  }

  /** Connects to the API. An answer, or one that is late or broken, shows that it can be reached. @throws the network's error */
  async reach(): Promise<void> {
    const limits = { headersTimeout: reachMs, bodyTimeout: reachMs };
    try {
      const { body } = await request(`${this.#apiUrl}/api/v1/me`, { dispatcher: this.#dispatcher, ...limits });
      await body.dump();
    } catch (error) {
      if (neverSent(error)) throw namingSetting(error, 'LIBRARY_API_URL');
    }
  }

  /** The user who connected, and the companies that can be read now (spec, section 4.4). */
  async me(call: Call): Promise<Me> {
    const { value } = await this.#getJson('/me', 'read /me', call, meAnswer);
    const companies: Me['companies'] = [];
    const problems: string[] = [];
    for (const entry of value.companies) {
      const { data, error } = company.safeParse(entry);
      if (data) companies.push({ id: data.id, name: data.name || data.id });
      else problems.push(`${labelOf(entry)} was skipped: ${problemOf(error)}`);
    }
    const user = { id: value.user.id, name: value.user.name ?? '', email: value.user.email ?? '' };
    return storable({ user, companies, problems });
  }

  /** The projects of a company that can be read (spec, section 4.5). */
  async listProjects(call: Call & { companyId: string }): Promise<{ id: string; name: string }[]> {
    const path = `/companies/${encodeURIComponent(call.companyId)}/projects`;
    const what = `list the projects of company ${call.companyId}`;
    const { value } = await this.#getJson(path, what, call, projectsAnswer);
    const projects = value.projects.map((entry) => project.safeParse(entry));
    return projects.flatMap(({ data }) => (data ? [{ id: data.id, name: data.name || data.id }] : []));
  }

  /** One page of a company's assets (spec, section 4.6). */
  async listAssets(call: ListAssetsCall): Promise<AssetPage> {
    const query = new URLSearchParams({ limit: '100' });
    if (call.since !== undefined) query.set('since', String(call.since));
    if (call.assetType !== undefined) query.set('assetType', call.assetType);
    else if (call.projectId !== undefined) query.set('projectId', call.projectId);
    if (call.cursor !== undefined) query.set('cursor', call.cursor);
    // Some servers do not read `+` as a space.
    const path = `/companies/${encodeURIComponent(call.companyId)}/assets?${query.toString().replaceAll('+', '%20')}`;
    const what = `list the assets of company ${call.companyId}`;
    const { value, date = Date.now() } = await this.#getJson(path, what, call, assetsAnswer);
    const page: AssetPage = { assets: [], broken: [], nextCursor: value.nextCursor || undefined, date };
    for (const item of value.assets) {
      const read = asset.safeParse(item);
      if (read.success) page.assets.push(read.data);
      else page.broken.push({ problem: problemOf(read.error), item });
    }
    return page;
  }

  /** One asset with fresh signed links (spec, section 4.7). */
  async getAsset(call: Call & { assetId: string }): Promise<AssetDetail> {
    const what = `read asset ${call.assetId}`;
    const { value } = await this.#getJson(`/assets/${encodeURIComponent(call.assetId)}`, what, call, assetAnswer);
    if (value.asset.id !== call.assetId) {
      throw new Error(`${what}: the library answered with another asset, ${JSON.stringify(value.asset.id)}`);
    }
    return value.asset;
  }

  /** The transcript: one request for the JSON, which contains captions and text (spec, section 4.8). */
  async getTranscript(call: Call & { assetId: string }): Promise<Transcript> {
    const path = `/assets/${encodeURIComponent(call.assetId)}/transcript`;
    const what = `read the transcript of asset ${call.assetId}`;
    try {
      const { value, text: json } = await this.#getJson(`${path}?format=json`, what, call, transcriptAnswer);
      if (value.assetId !== call.assetId) throw new Error(`${what}: the library answered for another asset`);
      if (value.noSpeech === true) return { kind: 'no speech' };
      // Older answers may lack one of the two.
      const vtt = value.vtt ?? (await this.#transcriptAs('vtt', path, what, call));
      const text = value.text ?? (await this.#transcriptAs('txt', path, what, call));
      if (vtt === undefined || text === undefined) return { kind: 'no speech' };
      return { kind: 'transcript', json, vtt, text };
    } catch (error) {
      if (error instanceof HttpError && error.status === 404) return { kind: 'not yet' };
      throw error;
    }
  }

  /** The captions or the text by itself; undefined if there is no speech. */
  async #transcriptAs(format: 'vtt' | 'txt', path: string, what: string, call: Call) {
    const accept = format === 'vtt' ? 'text/vtt' : 'text/plain';
    const { text, contentType, unbounded } = await this.#get(`${path}?format=${format}`, what, call, accept);
    if (/json/i.test(contentType) && /"noSpeech"\s*:\s*true/.test(text)) return undefined;
    if (unbounded) {
      throw new Error(`${what}: the length of the ${format} is unknown, so a truncated one would not be noticed`);
    }
    const isPlausible =
      format === 'vtt'
        ? /^\uFEFF?WEBVTT/.test(text)
        : !/json/i.test(contentType) && !/^\s*(<!doctype|<html|\{\s*"error")/i.test(text);
    if (!isPlausible) throw new Error(`${what}: the answer is not ${format}`);
    return text;
  }

  async #getJson<T extends z.ZodType>(path: string, what: string, call: Call, schema: T) {
    const answer = await this.#get(path, what, call);
    let body: unknown;
    try {
      body = JSON.parse(answer.text.replace(/^\uFEFF/, ''));
    } catch (cause) {
      throw new Error(`${what}: the library's answer is not JSON`, { cause });
    }
    return { ...answer, value: parseAnswer(schema, what, body) };
  }

  #get(path: string, what: string, { token, signal }: Call, accept = 'application/json') {
    const headers = { authorization: `Bearer ${token}`, accept };
    return getText(`${this.#apiUrl}/api/v1${path}`, { what, headers, dispatcher: this.#dispatcher, signal });
  }
}

/** Names a company of `/me` that cannot be read: by its id, or else by its name. */
function labelOf(entry: unknown): string {
  const { id, name } = (entry ?? {}) as Record<string, unknown>;
  return `company ${JSON.stringify((textOf(id) ?? textOf(name) ?? '').slice(0, 100))}`;
}
