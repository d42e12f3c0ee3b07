import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { z } from 'zod';
import { parseBandwidth } from '../floor/bandwidth-limit.ts';
import { type Role, roles } from '../floor/roles.ts';
import { parseDuration } from '../floor/units.ts';

/** Schemas for environment variables: text in, checked values out. Durations are milliseconds, sizes bytes. */

/** `expected` says what a valid value is: the second half of the error message. */
export const variable = <T extends z.ZodType>(schema: T, expected: string): T => schema.meta({ expected });

/** Marks an issue without a text of its own: the error message then says what is `expected`. */
export const noDetail = { noDetail: true };

/** A variable that `parse` reads; undefined means that the text is not valid. */
export const parsed = <T>(parse: (text: string) => T | undefined, expected: string) =>
  variable(
    z.string().transform((text, context) => {
      const value = parse(text);
      if (value !== undefined) return value;
      context.addIssue({ code: 'custom', params: noDetail });
      return z.NEVER;
    }),
    expected,
  );

/** A rate or a timetable. */
export const bandwidth = () =>
  z.string().transform((text, context) => {
    const found = parseBandwidth(text);
    if ('limit' in found) return found.limit;
    context.addIssue(found.expected);
    return z.NEVER;
  });

/** The entries of a list with commas. */
export const list = <T>(parse: (entry: string) => T | undefined, expected: string) =>
  parsed((text) => listOf(text, parse), expected);

export const isUrl = (text: string, protocol: RegExp) => URL.canParse(text) && protocol.test(new URL(text).protocol);

export const text = (expected: string) => variable(z.string(), expected);

export const oneOf = <const T extends readonly [string, string, ...string[]]>(...names: T) =>
  variable(z.enum(names), `${names.slice(0, -1).join(', ')} or ${names.at(-1)}`);

/** An address without user, password, query or fragment. */
const isPlainUrl = (text: string) => {
  if (!isUrl(text, /^https?:$/)) return false;
  const { search, hash, username, password } = new URL(text);
  return !(search || hash || username || password);
};

/** S3_PUBLIC_ENDPOINT. */
export const parsePublicEndpoint = (text: string) => (text === 'none' || isPlainUrl(text) ? text : undefined);

/** An entry of CONNECT_RETURN_ORIGINS: https, or http for localhost. */
export function parseReturnOrigin(entry: string): string | undefined {
  const url = isPlainUrl(entry) ? new URL(entry) : undefined;
  const isSafe = url?.protocol === 'https:' || url?.hostname === 'localhost';
  return url && isSafe && url.pathname === '/' && !url.hostname.includes('*') ? url.origin : undefined;
}

export const httpUrl = (expected: string, example: string, options: { query?: boolean } = {}) =>
  parsed(
    (text) => (isPlainUrl(text) || (options.query && isUrl(text, /^https?:$/)) ? text : undefined),
    `${expected}, such as ${example}${options.query ? '' : ', without user and password'}`,
  );

export const libraryUrl = (which: string) =>
  httpUrl(`the ${which} address of the Asset Library Service`, 'https://library.example.com');

/** The usual form of a proxy's address: without a scheme it is http. */
export const proxyUrl = () =>
  parsed((text) => {
    const url = /^\w+:\/\//.test(text) ? text : `http://${text}`;
    return isUrl(url, /^https?:$/) ? url : undefined;
  }, 'the address of a proxy, such as http://proxy.example.com:3128');

export const databaseUrl = (or: string) =>
  parsed(
    (text) => (isUrl(text, /^postgres(ql)?:$/) ? text : undefined),
    `postgres://user:password@host/database, ${or}`,
  );

const days = 86_400_000;

export function duration(fallback: string, { least = 1, most = 3650 * days } = {}) {
  const from = least < 1000 ? `${least}ms` : `${least / 1000}s`;
  return parsed(
    (text) => within(parseDuration(text), least, most),
    `a duration with units, such as 30s, 5m or 24h, from ${from} to ${most / days} days`,
  ).prefault(fallback);
}

/** A duration, or `all` (infinity), or `none` (0). */
export const keepTime = (fallback: string) =>
  parsed((text) => {
    if (text === 'all') return Number.POSITIVE_INFINITY;
    return text === 'none' ? 0 : within(parseDuration(text), 1000, 36_500 * days);
  }, 'all, none, or a duration with units, such as 90d, from 1s to 36500 days').prefault(fallback);

/** The time between runs of something, or `off` (0). It may be longer than a timer. */
export const cycle = (fallback: string) =>
  parsed(
    (text) => (text.toLowerCase() === 'off' ? 0 : within(parseDuration(text), 1000, 3650 * days)),
    `a duration from 1s to 3650 days, such as ${fallback}, or off`,
  ).prefault(fallback);

/** A duration for a timer of Node: a longer timer would fire at once. */
export const timer = (fallback: string, least = 1) => duration(fallback, { least, most: 24 * days });

export const count = (fallback: number, most: number) =>
  parsed((text) => within(integer(text), 1, most), `a whole number from 1 to ${most}`).prefault(String(fallback));

export const port = () =>
  parsed((text) => within(integer(text), 0, 65_535), 'a port number from 0 to 65535 (0 takes any free one)');

const integer = (text: string) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined);
const within = (value: number | undefined, least: number, most: number) =>
  value !== undefined && value >= least && value <= most ? value : undefined;

const flags = new Map(Object.entries({ true: true, false: false, 1: true, 0: false, yes: true, no: false }));
export const flag = (fallback: boolean) =>
  parsed((text) => flags.get(text.toLowerCase()), 'true or false').prefault(String(fallback));

/** Whether a flag is off. */
export const isOff = (text: string | undefined) => flags.get(text?.trim().toLowerCase() ?? '') === false;

export const typeNames = () =>
  parsed((text) => split(text).filter(Boolean), 'names with commas between them, such as videos,photography').prefault(
    '',
  );

const split = (text: string) => text.split(',').map((entry) => entry.trim());

/** The entries of a list with commas; undefined if one of them is not valid. */
function listOf<T>(text: string, parse: (entry: string) => T | undefined): T[] | undefined {
  const values = split(text).map((entry) => parse(entry));
  return values.every((value) => value !== undefined) ? values : undefined;
}

/** An entry of TRUST_PROXY in Fastify's form. Not a number of hops: a client that bypasses the proxy could forge its address. */
export function parseTrustedProxy(entry: string): string | undefined {
  if (['loopback', 'linklocal', 'uniquelocal'].includes(entry)) return entry;
  const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(entry) ?? [];
  const version = isIP(address);
  return version !== 0 && Number(bits ?? 0) <= (version === 4 ? 32 : 128) ? entry : undefined;
}

/** `true`: any address. Else the hosts that may have private addresses. */
export function parsePrivateHosts(text: string): true | string[] | undefined {
  const all = flags.get(text.toLowerCase());
  if (all !== undefined) return all || [];
  return listOf(text.toLowerCase(), (entry) => {
    const host = entry.replace(/^\[|\]$/g, '');
    return isIP(host) || /^[\w-]+(\.[\w-]+)*$/.test(host) ? host : undefined;
  });
}

/** `forever` (infinite), or a duration. */
export const parseRetention = (text: string): number | undefined =>
  text.toLowerCase() === 'forever' ? Number.POSITIVE_INFINITY : within(parseDuration(text), 1000, 36_500 * days);

/** `admin:platform`: a role, and the value of a claim that gives it. */
export function parseGrant(text: string): { role: Role; value: string } | undefined {
  const [, name, value] = /^([^:]+):(.+)$/s.exec(text) ?? [];
  const role = roles.find((known) => known === name?.trim());
  return role && value?.trim() ? { role, value: value.trim() } : undefined;
}

/** An issuer has https (OpenID Connect Discovery 1.0, section 3); for trials, also http on this machine. */
export function parseIssuer(text: string): string | undefined {
  const url = isPlainUrl(text) ? new URL(text) : undefined;
  const isLocal = url?.protocol === 'http:' && /^(localhost|127\.0\.0\.1|\[::1\])$/.test(url.hostname);
  return url?.protocol === 'https:' || isLocal ? text : undefined;
}

/** `governance:365d` */
export function parseObjectLock(text: string): { mode: 'GOVERNANCE' | 'COMPLIANCE'; ms: number } | undefined {
  const [, name, time = ''] = /^(governance|compliance):(.*)$/i.exec(text) ?? [];
  const ms = within(parseDuration(time), 1000, 36_500 * days);
  if (!name || ms === undefined) return undefined;
  return { mode: name.toLowerCase() === 'governance' ? 'GOVERNANCE' : 'COMPLIANCE', ms };
}

/** A key in base64 or base64url. */
export function parseKey(text: string, { least = 32, most = 32 } = {}): Buffer | undefined {
  const key = Buffer.from(text, 'base64');
  return /^[\w+/-]+=*$/.test(text) && key.length >= least && key.length <= most ? key : undefined;
}

/** The key in a secret with or without `whsec_` (https://www.standardwebhooks.com, "Signature scheme"). */
export const parseWebhookSecret = (secret: string) => parseKey(secret.replace(/^whsec_/, ''), { least: 24, most: 64 });

/**
 * KEY_TEMPLATE. `{companyId}` and `{assetId}` must be whole segments and `{filename}` the last one: so two assets never
 * share a key, and no key is the folder of another.
 */
export function parseTemplate(template: string): string | undefined {
  const segments = template.split('/');
  const known = /^[^{}]*(\{(companyId|projectId|assetId|filename)\}[^{}]*)*$/;
  const valid =
    segments.every((s) => s !== '' && s !== '.' && s !== '..' && known.test(s)) &&
    segments.includes('{companyId}') &&
    segments.includes('{assetId}') &&
    segments.at(-1) === '{filename}' &&
    !template.startsWith('_mirror');
  return valid ? template : undefined;
}

export type StorageTarget = { kind: 's3'; bucket: string; prefix: string } | { kind: 'directory'; path: string };

/** `s3://bucket/prefix` or `file:///dir`. Old buckets may have names with capitals and underscores. */
export function parseStorageUrl(value: string): StorageTarget | undefined {
  const s3 = /^s3:\/\/([a-z0-9][a-z0-9._-]{2,62})(?:\/(.*))?$/i.exec(value);
  if (s3) {
    const prefix = (s3[2] ?? '').replace(/^\/+|\/+$/g, '');
    if (prefix.split('/').some((segment) => segment === '..' || segment === '.')) return undefined;
    return { kind: 's3', bucket: s3[1]!, prefix };
  }
  // Not parsed as a URL, because `file://./data` and paths with spaces are allowed.
  const file = /^file:\/\/(.+)$/.exec(value);
  return file ? { kind: 'directory', path: resolve(decode(file[1]!)) } : undefined;
}

function decode(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
