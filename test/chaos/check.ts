import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import {
  GetObjectCommand,
  ListMultipartUploadsCommand,
  paginateListObjectsV2,
  type S3Client,
} from '@aws-sdk/client-s3';
import { because, type Reason } from '../../src/floor/reasons.ts';
import { png } from '../../src/library/content/formats/images.ts';
import { chunksOf } from '../../src/library/index.ts';
import type { Dated, Held } from './content.ts';
import { users } from './plan.ts';
import type { Passed } from './proxy.ts';
import { clientSecret, type World } from './world.ts';

/**
 * The final check. It reads bucket, database and library with its own clients, computes the expected content, and uses no code
 * of the mirror.
 */

/** A fault as it was, in epoch milliseconds. */
export interface Happened {
  number: number;
  name: string;
  of: string;
  from: number;
  to: number;
}

export interface Finding {
  what: string;
  /** What was checked. */
  seen: string;
  problems: string[];
}

interface Row {
  id: string;
  company_id: string;
  state: string;
  reason: Reason | null;
  media: { key: string; bytes: number; variant: string; version: string } | null;
  record_key: string | null;
  transcript_state: string;
  transcript_keys: string[] | null;
  thumbnail_state: string;
  thumbnail: { key: string; bytes: number } | null;
  upload: { id: string } | null;
  mirrored_at: Date | null;
}

const MiB = 2 ** 20;
/** Larger ones go in parts. */
const inParts = 32 * MiB;

export async function check(world: World, history: Happened[]): Promise<Finding[]> {
  const rows = await world.query<Row>('SELECT * FROM assets');
  const objects = openObjects(world);
  const there = new Map<string, number>();
  for (const { key, bytes } of await objects.list()) there.set(key, bytes);
  return [
    await bytesAreExact(world, rows, objects, there),
    await nothingElse(world, rows, there),
    await uploads(rows, objects, history),
    downloads(world, rows, history),
    await tokens(world, history),
    marks(await readMarks(world), world.content.dates, world.content.held, 'at the end'),
    await secrets(world, objects, there),
    surprises(world),
  ];
}

async function bytesAreExact(
  world: World,
  rows: Row[],
  objects: Objects,
  there: Map<string, number>,
): Promise<Finding> {
  const problems: string[] = [];
  const byId = new Map(rows.map((row) => [row.id, row]));
  let [exact, bytes, transcripts, thumbnails, removed, without] = [0, 0, 0, 0, 0, 0];
  for (const asset of world.content.held.values()) {
    const { plan } = asset;
    const row = byId.get(plan.id);
    const say = (text: string) => problems.push(`${plan.id} (${plan.kind}): ${text}`);
    if (asset.removed) {
      removed++;
      // Copied files stay; others can no longer be copied.
      const honest =
        !row ||
        ['mirrored', 'gone', 'unavailable'].includes(row.state) ||
        (row.state === 'failed' && row.reason?.code === 'http_status' && [404, 410].includes(row.reason.status));
      if (!honest) say(`was removed at the library, and is ${row.state}${because(row.reason)}`);
      if (row?.state !== 'mirrored' && row?.state !== 'gone') continue;
      if (!row.media || !row.record_key) continue;
    } else if (!row) {
      say('is not in the records');
      continue;
    } else if (asset.status === 'unavailable') {
      without++;
      if (row.state !== 'unavailable' || row.reason?.code !== 'no_file')
        say(`has no file, and is ${row.state}${because(row.reason)}`);
      continue;
    } else if (row.state !== 'mirrored') {
      say(`is ${row.state}${because(row.reason)}`);
      continue;
    }
    const { media } = row;
    const expected = asset.plan.originalGone ? asset.mp4! : asset.content;
    if (!media || !row.record_key) {
      say('is mirrored without media or record');
      continue;
    }
    const place = `${plan.companyId}/${plan.projectId ?? '_'}/${plan.id}/`;
    if (!media.key.startsWith(place)) say(`lies at ${media.key}, not below ${place}`);
    if (media.variant !== (plan.originalGone ? 'mp4' : 'original')) say(`is the ${media.variant}`);
    if (there.get(media.key) !== expected.size) {
      say(`${media.key} has ${there.get(media.key) ?? 'no'} bytes of ${expected.size}`);
      continue;
    }
    if ((await digestOf(await objects.read(media.key))) !== digestOfChunks(chunksOf(expected.seed, 0, expected.size))) {
      say(`${media.key} has other bytes`);
      continue;
    }
    exact++;
    bytes += expected.size;

    const record = JSON.parse(await textOf(await objects.read(row.record_key)));
    const truth = {
      id: plan.id,
      name: asset.name,
      size: asset.content.size,
      uploadDate: asset.uploadDate,
    };
    if (!asset.removed) {
      for (const [field, value] of Object.entries(truth)) {
        if (record.asset[field] !== value)
          say(`its record says ${field} ${JSON.stringify(record.asset[field])}, not ${JSON.stringify(value)}`);
      }
    }
    if (record.media.key !== media.key || record.media.bytes !== expected.size) say('its record describes other media');

    const said = asset.transcript;
    if (said && !asset.removed) {
      transcripts++;
      if ('noSpeech' in said) {
        if (row.transcript_state !== 'no_speech') say(`has no speech, and its transcript is ${row.transcript_state}`);
      } else if (row.transcript_state !== 'mirrored') {
        say(`its transcript is ${row.transcript_state}`);
      } else {
        const wanted = { vtt: said.vtt, txt: said.text };
        for (const [ending, text] of Object.entries(wanted)) {
          const key = `${media.key}.${ending}`;
          if (!there.has(key) || (await textOf(await objects.read(key))) !== text) say(`${key} is not the transcript`);
        }
        const key = `${media.key}.transcript.json`;
        const json = there.has(key) ? JSON.parse(await textOf(await objects.read(key))) : {};
        if (json.assetId !== plan.id || json.text !== said.text) say(`${key} is not the transcript`);
      }
    }
    if (/photograph|graphic|video/.test(plan.kind)) {
      thumbnails++;
      const picture = png(96, 64, plan.id);
      const key = row.thumbnail?.key;
      if (row.thumbnail_state !== 'mirrored' || !key || !there.has(key)) {
        if (!asset.removed) say(`its thumbnail is ${row.thumbnail_state}`);
      } else if ((await digestOf(await objects.read(key))) !== digestOfChunks([picture]))
        say(`${key} is another picture`);
    }
  }
  return {
    what: 'each asset is in the bucket byte for byte, or has a true reason',
    seen: `${exact} files, ${Math.round(bytes / MiB)} MiB; ${transcripts} transcripts, ${thumbnails} thumbnails; ${without} without a file, ${removed} removed`,
    problems,
  };
}

async function nothingElse(world: World, rows: Row[], there: Map<string, number>): Promise<Finding> {
  const known = new Set(
    rows.flatMap((row) => [row.media?.key, row.record_key, row.thumbnail?.key, ...(row.transcript_keys ?? [])]),
  );
  // Stored, but removed at the library before that was recorded.
  const abandoned = rows
    .filter((row) => !row.record_key && row.state !== 'mirrored' && world.content.held.get(row.id)?.removed)
    .map((row) => `/${row.id}/`);
  const unvouched = (key: string) => abandoned.some((place) => key.includes(place));
  const unknownKeys = [...there.keys()].filter((key) => !known.has(key) && !key.startsWith('_mirror/'));
  const strange = unknownKeys.filter((key) => !unvouched(key));
  const left = unknownKeys.length - strange.length;
  const ids = new Set(world.content.held.keys());
  const unknown = rows.filter((row) => !ids.has(row.id));
  return {
    what: 'the bucket has no object without a record',
    seen: `${there.size} objects${left > 0 ? `; ${left} of them of files that were deleted in the library meanwhile` : ''}`,
    problems: [
      ...strange.map((key) => `nobody knows ${key}`),
      ...unknown.map((row) => `the library never had ${row.id}`),
    ],
  };
}

/** How long after a fault it may still be the cause of another request: stores retry, leases end. */
const aftermath = 15_000;

async function uploads(rows: Row[], objects: Objects, history: Happened[]): Promise<Finding> {
  const known = new Set(rows.map((row) => row.upload?.id));
  const left = (await objects.uploads()).filter(({ id }) => !known.has(id));
  // A process died before it recorded this upload: the sweep removes it when it is old enough.
  const caused = left.filter(({ begun }) => begun && overlaps(history, begun - aftermath, begun + aftermath));
  const orphans = left.filter((upload) => !caused.includes(upload));
  return {
    what: 'the bucket has no abandoned upload',
    seen: caused.length > 0 ? `${caused.length} of killed processes, which the sweep will remove` : 'none',
    problems: orphans.map(({ key }) => `an upload to ${key} is under way, and nobody knows why`),
  };
}

/** A file that is replaced during a request may be fetched in its old version. */
const replacing = 3000;
/** Faults that make a complete answer of the library useless. */
const flawed = ['media-of-another-size', 'pages-for-files'];

/** The faults that made a fetch useless: those that interrupted it, or that lost its result. */
function causeOf({ whole, at, ended }: Passed, history: Happened[]): Happened | undefined {
  const parts = whole ? ['worker', 's3', 'postgres'] : ['worker', 's3', 'postgres', 'library', 'tokens'];
  return history.find(
    (fault) =>
      (parts.includes(fault.of) || (whole && flawed.includes(fault.name))) &&
      fault.from <= ended + 5000 &&
      fault.to >= at - 1000,
  );
}

/** Each fetch of a file beyond the first is explained by a fault of the previous one, or of its result. */
function downloads(world: World, rows: Row[], history: Happened[]): Finding {
  const problems: string[] = [];
  const byId = new Map(rows.map((row) => [row.id, row]));
  const fetches = new Map<string, Passed[]>();
  for (const entry of world.libraryProxy.passed) {
    const id = /^\/media\/([^/]+)\/(original|mp4)$/.exec(entry.path)?.[1];
    // A request for the first byte finds the length.
    if (!id || ![200, 206].includes(entry.status) || entry.range === 'bytes=0-0') continue;
    fetches.set(decodeURIComponent(id), [...(fetches.get(decodeURIComponent(id)) ?? []), entry]);
  }
  let [files, again, bytes, needed] = [0, 0, 0, 0];
  for (const [id, all] of fetches) {
    const asset = world.content.held.get(id)!;
    const row = byId.get(id);
    const { versions, plan } = asset;
    bytes += all.reduce((sum, entry) => sum + entry.bytes, 0);
    for (const [v, since] of versions.entries()) {
      const mine = all.filter((entry) => entry.at >= since && entry.at < (versions[v + 1] ?? Number.POSITIVE_INFINITY));
      if (mine.length === 0) continue;
      files++;
      const size = plan.originalGone ? plan.mp4Size! : v === 0 ? plan.size : plan.replacedSize;
      needed += size;
      if (size > inParts) {
        // For a file in parts: as many bytes as its faults explain.
        const [from, to] = [mine[0]!.at, mine.at(-1)!.ended];
        const hits = history.filter((fault) => fault.from < to && fault.to + aftermath > from).length;
        const moved = mine.reduce((sum, entry) => sum + entry.bytes, 0);
        if (moved > size * (1 + hits))
          problems.push(`${id}: ${moved} bytes were fetched of ${size}, and ${hits} faults hit it`);
        if (moved > size) again++;
        continue;
      }
      for (const [n, entry] of mine.entries()) {
        if (n === 0) continue;
        again++;
        const before = mine[n - 1]!;
        const when = `${id}: fetched again at ${clock(entry.at)}`;
        const done = row?.mirrored_at?.getTime();
        if (versions.length === 1 && done && entry.at > done + 1000) {
          problems.push(`${when}, ${((entry.at - done) / 1000).toFixed(1)} s after it was mirrored`);
        } else if (!causeOf(before, history) && !(v > 0 && n === 1 && before.at < since + replacing)) {
          problems.push(
            `${when}, and no fault explains it (before: ${before.status}, ${before.whole ? 'whole' : 'cut'})`,
          );
        }
      }
    }
  }
  return {
    what: 'no file was downloaded again without a fault that explains it',
    seen: `${files} files; ${again} downloads repeated, ${(bytes / Math.max(1, needed)).toFixed(2)} times the bytes`,
    problems,
  };
}

async function tokens(world: World, history: Happened[]): Promise<Finding> {
  const problems: string[] = [];
  const live = await world.library.admin((admin) => admin.connections());
  const connections = await world.query<{ user_id: string; status: string; last_error: string | null }>(
    'SELECT * FROM connections',
  );
  for (const { id } of users) {
    const tokens = live.find(({ userId }) => userId === id)?.refreshTokens;
    if (tokens !== 1) problems.push(`${id} has ${tokens} live refresh tokens at the library`);
    const connection = connections.find(({ user_id }) => user_id === id);
    if (connection?.status !== 'active') problems.push(`the connection of ${id} is ${connection?.status}`);
  }
  if (connections.length !== users.length)
    problems.push(`there are ${connections.length} connections of ${users.length} users`);

  const ended = await world.query<{ user_id: string; at: Date; data: { reason: string } }>(
    `SELECT c.user_id, e.at, e.data FROM events e JOIN connections c ON c.id = e.connection_id WHERE e.kind = 'connection.disconnected'`,
  );
  for (const { user_id, at, data } of ended) {
    const time = at.getTime();
    const byUser = world.endedByUs.some(({ user, at }) => user === user_id && at <= time);
    // The answer with the new token never came, or came to a process that died before it was saved.
    const lost = world.libraryProxy.passed.some(
      (entry) => entry.path.endsWith('/oauth/token') && entry.at < time && (!entry.whole || entry.status === 0),
    );
    const died = overlaps(
      history.filter((fault) => /kill|postgres/.test(fault.name)),
      time - 60_000,
      time,
    );
    if (!byUser && !lost && !died)
      problems.push(`the connection of ${user_id} ended at ${clock(time)} without a cause: ${data.reason}`);
  }
  return {
    what: 'each connection has exactly one valid refresh token',
    seen: `${connections.length} connections, with ${ended.length} reconnects`,
    problems,
  };
}

export interface Marks {
  marks: { user: string; company: string; highWaterMark: number }[];
  ids: Set<string>;
}

/** High-water marks and records, read at once. */
export async function readMarks(world: World): Promise<Marks> {
  const [row] = await world.query<{ marks: Marks['marks'] | null; ids: string[] | null }>(`SELECT
    (SELECT json_agg(json_build_object('user', c.user_id, 'company', a.company_id, 'highWaterMark', a.high_water_mark))
      FROM access a JOIN connections c ON c.id = a.connection_id WHERE a.high_water_mark IS NOT NULL) AS marks,
    (SELECT array_agg(id) FROM assets) AS ids`);
  return { marks: row!.marks ?? [], ids: new Set(row!.ids) };
}

/**
 * A high-water mark is the date of some asset that was listed. All assets that were uploaded before that one, with an earlier date, were in the same
 * listing or an earlier one, so they must be in the records. Assets dated back beyond the overlap are exempt.
 */
export function marks({ marks, ids }: Marks, dates: Dated[], held: Map<string, Held>, when: string): Finding {
  const problems: string[] = [];
  for (const { user, company, highWaterMark } of marks) {
    const order = dates.findIndex(({ companyId, date }) => companyId === company && date === highWaterMark);
    if (order < 0)
      problems.push(
        `${when}: the high-water mark of ${user} at ${company} is ${highWaterMark}, which is no asset's date`,
      );
    for (const { id, companyId, date } of dates.slice(0, Math.max(0, order))) {
      const asset = held.get(id)!;
      const exempt = asset.removed || asset.versions.length > 1 || asset.plan.date.kind === 'late';
      if (companyId === company && date < highWaterMark && !exempt && !ids.has(id)) {
        problems.push(`${when}: the high-water mark of ${user} at ${company} is ahead of ${id}, which is in no record`);
      }
    }
  }
  return { what: 'no high-water mark is ahead of the records', seen: `${marks.length} high-water marks`, problems };
}

const secret = /svc[acrs]_[\w-]{8,}|[?&]signature=\w|Bearer \w/;

async function secrets(world: World, objects: Objects, there: Map<string, number>): Promise<Finding> {
  const problems: string[] = [];
  for (const name of ['web', 'worker-1', 'worker-2']) {
    const line = (await readFile(world.programs[name]!.log, 'utf8'))
      .split('\n')
      .find((text) => secret.test(text) || text.includes(clientSecret));
    if (line) problems.push(`the log of ${name} has a secret: ${line.slice(0, 200)}`);
  }
  let records = 0;
  for (const key of there.keys()) {
    if (!key.endsWith('.asset.json')) continue;
    records++;
    if (secret.test(await textOf(await objects.read(key)))) problems.push(`${key} has a secret`);
  }
  return { what: 'no token and no signed link was written', seen: `3 logs, ${records} records`, problems };
}

function surprises(world: World): Finding {
  const programs = Object.values(world.programs);
  return {
    what: 'no process exited by itself',
    seen: `${programs.length} processes`,
    problems: programs.flatMap((program) => program.surprises),
  };
}

function overlaps(history: Happened[], from: number, to: number): boolean {
  return history.some((fault) => fault.from <= to && fault.to >= from);
}

const clock = (time: number) => new Date(time).toISOString().slice(11, 23);

type Objects = ReturnType<typeof openObjects>;

function openObjects(world: World) {
  return world.bucket ? inBucket(world.bucket) : inDirectory(world.disk);
}

function inBucket(client: S3Client) {
  const Bucket = 'mirror';
  return {
    async list() {
      const found: { key: string; bytes: number }[] = [];
      for await (const page of paginateListObjectsV2({ client }, { Bucket, Prefix: 'copy/' })) {
        for (const { Key, Size } of page.Contents ?? []) found.push({ key: Key!.slice('copy/'.length), bytes: Size! });
      }
      return found;
    },
    read: async (key: string) =>
      (await client.send(new GetObjectCommand({ Bucket, Key: `copy/${key}` }))).Body as Readable,
    async uploads(): Promise<{ id: string; key: string; begun: number | undefined }[]> {
      const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket }));
      return Uploads.map(({ UploadId, Key, Initiated }) => ({ id: UploadId!, key: Key!, begun: Initiated?.getTime() }));
    },
  };
}

const workshop = '.asset-mirror-tmp';

function inDirectory(root: string) {
  return {
    async list() {
      const found: { key: string; bytes: number }[] = [];
      for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
        const path = join(entry.parentPath, entry.name);
        const key = path.slice(root.length + 1);
        if (entry.isFile() && !key.startsWith(workshop)) found.push({ key, bytes: (await stat(path)).size });
      }
      return found;
    },
    read: async (key: string): Promise<Readable> => createReadStream(join(root, key)),
    async uploads(): Promise<{ id: string; key: string; begun: number | undefined }[]> {
      const names = await readdir(join(root, workshop));
      return Promise.all(
        names.map(async (name) => ({
          id: name.replace(/\.(upload|parts)$/, ''),
          key: name,
          begun: (await stat(join(root, workshop, name))).mtimeMs,
        })),
      );
    },
  };
}

/** Damages the copy in every way that the check must find. */
export async function sabotage(world: World): Promise<void> {
  const { rows } = {
    rows: await world.query<Row>("SELECT * FROM assets WHERE state = 'mirrored' AND bytes > 0 ORDER BY id"),
  };
  const [changed, lost, renamed, forgotten] = rows as [Row, Row, Row, Row];
  const file = (key: string) => join(world.disk, key);
  const bytes = await readFile(file(changed.media!.key));
  bytes[bytes.length - 1]! ^= 1;
  await writeFile(file(changed.media!.key), bytes);
  await rm(file(lost.media!.key));
  await writeFile(file(`${changed.company_id}/stray`), 'stray');
  const record = await readFile(file(renamed.record_key!), 'utf8');
  await writeFile(file(renamed.record_key!), record.replace(/"name": "/, '"name": "not '));
  await world.query('DELETE FROM assets WHERE id = $1', [forgotten.id]);
}

/** Makes drafts of dead processes old enough for the sweep. */
export async function ageDrafts(world: World): Promise<void> {
  if (world.bucket) return;
  const longAgo = new Date(Date.now() - 8 * 24 * 3_600_000);
  for (const name of await readdir(join(world.disk, workshop)))
    await utimes(join(world.disk, workshop, name), longAgo, longAgo);
}

async function digestOf(body: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of body) hash.update(chunk);
  return hash.digest('hex');
}

function digestOfChunks(chunks: Iterable<Buffer>): string {
  const hash = createHash('sha256');
  for (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}

async function textOf(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
