import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { copiedAt, copyKey, copyRecord } from './copies.ts';

/**
 * A minimal S3 server: it reads bodies, returns the checksum that it received, and keeps only the first few KiB, so that the
 * cost of its clients can be measured. It checks nothing, not even signatures. With FILES and BYTES it lists `file-0.bin`,
 * `file-1.bin`, … in every bucket; with COMPANIES, it lists the copies of FILES files of each company instead, as a
 * mirror has them, with their records (copies.ts).
 */
const [files = 0, bytes = 0, companies = 0] = process.argv.slice(2).map(Number);

/** The keys of a bucket, in their order, without a list of them in memory if there may be many. */
interface Keys {
  count: number;
  at(place: number): { key: string; bytes: number };
  /** The place of the first key behind this one. */
  behind(key: string): number;
}

function plainFiles(): Keys {
  const names = Array.from({ length: files }, (_, i) => `file-${i}.bin`).sort();
  const placeOf = new Map(names.map((name, i) => [name, i]));
  return {
    count: files,
    at: (place) => ({ key: names[place]!, bytes }),
    behind: (key) => placeOf.get(key)! + 1,
  };
}

const recordEnding = '.asset.json';
const copy = /^company-(\d+)\/k\/(\d+)(\.asset\.json)?$/;

function copies(): Keys {
  return {
    count: companies * files * 2,
    at(place) {
      const file = Math.floor(place / 2);
      const key = copyKey(1 + Math.floor(file / files), file % files);
      return place % 2 === 0 ? { key, bytes } : { key: `${key}${recordEnding}`, bytes: recordOf(key)!.length };
    },
    behind(key) {
      const [, company, file, ending] = copy.exec(key) ?? [];
      if (company === undefined) return key < 'company' ? 0 : this.count;
      return ((Number(company) - 1) * files + Number(file)) * 2 + (ending ? 1 : 0) + 1;
    },
  };
}

/** The record of a copy, and undefined for any other key. */
function recordOf(media: string): Buffer | undefined {
  const [, company, file] = copy.exec(media) ?? [];
  return companies > 0 && company !== undefined ? copyRecord(Number(company), Number(file), bytes) : undefined;
}

const keys = companies > 0 ? copies() : plainFiles();
const kept = new Map<string, { size: number; body: Buffer; crc32?: string | undefined }>();
/** Manifests are read back whole. */
const keptBytes = (pathname: string) => (pathname.includes('/_mirror/manifests/') ? 2 ** 20 : 8 * 1024);
const etag = '"00000000000000000000000000000000"';

const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url!, 'http://store');
  if (request.method === 'GET' && !pathname.slice(1).replace(/\/$/, '').includes('/')) {
    return void response.setHeader('content-type', 'application/xml').end(list(searchParams));
  }
  if (request.method === 'PUT') {
    const declared = request.headers['x-amz-checksum-crc32'] as string | undefined;
    let size = 0;
    const head: Buffer[] = [];
    // A trailing checksum is in the last chunk, after the bytes.
    let tail: Buffer = Buffer.alloc(0);
    request.on('data', (chunk: Buffer) => {
      if (size < keptBytes(pathname)) head.push(chunk);
      size += chunk.length;
      tail = chunk.length >= 200 ? chunk.subarray(-200) : Buffer.concat([tail, chunk]).subarray(-200);
    });
    request.on('end', () => {
      const crc32 = declared ?? /x-amz-checksum-crc32:(\S+)/.exec(tail.toString('latin1'))?.[1];
      const body = Buffer.concat(head).subarray(0, keptBytes(pathname));
      kept.set(pathname, { size: Number(request.headers['x-amz-decoded-content-length'] ?? size), body, crc32 });
      response.setHeader('etag', etag);
      if (crc32) response.setHeader('x-amz-checksum-crc32', crc32).setHeader('x-amz-checksum-type', 'FULL_OBJECT');
      response.end();
    });
    return;
  }
  const object = kept.get(pathname) ?? copyAt(pathname);
  if (request.method === 'DELETE') {
    kept.delete(pathname);
    return void response.writeHead(204).end();
  }
  if (!object) {
    const missing = '<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>';
    return void response.writeHead(404, { 'content-type': 'application/xml' }).end(missing);
  }
  response.setHeader('etag', etag).setHeader('last-modified', copiedAt.toUTCString());
  response.setHeader('content-length', request.method === 'HEAD' ? object.size : object.body.length);
  if (object.crc32) response.setHeader('x-amz-checksum-crc32', object.crc32);
  response.end(request.method === 'HEAD' ? undefined : object.body);
}).listen(0, '127.0.0.1', () => process.send!(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
server.keepAliveTimeout = 60_000;
// How many objects it was given.
process.on('message', () => process.send!(kept.size));
process.on('disconnect', () => process.exit());

/** A copy, without its content, or its record, at `/BUCKET/KEY`. */
function copyAt(pathname: string): { size: number; body: Buffer; crc32?: string } | undefined {
  const key = pathname.slice(pathname.indexOf('/', 1) + 1);
  const isRecord = key.endsWith(recordEnding);
  const record = recordOf(isRecord ? key.slice(0, -recordEnding.length) : key);
  if (!record) return undefined;
  return isRecord ? { size: record.length, body: record } : { size: bytes, body: Buffer.alloc(0) };
}

/** A page of ListObjects or ListObjectsV2. The next one begins after the last key of this one. */
function list(query: URLSearchParams): string {
  const behind = query.get('continuation-token') ?? query.get('marker') ?? query.get('start-after');
  const first = behind ? keys.behind(behind) : 0;
  const most = Math.min(1000, Number(query.get('max-keys') ?? 1000));
  const length = query.get('prefix') ? 0 : Math.max(0, Math.min(most, keys.count - first));
  const page = Array.from({ length }, (_, i) => keys.at(first + i));
  const more = length > 0 && first + length < keys.count;
  const contents = page.map(
    ({ key, bytes }) =>
      `<Contents><Key>${key}</Key><LastModified>${copiedAt.toISOString()}</LastModified><ETag>${etag}</ETag><Size>${bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>`,
  );
  const next = more ? ['NextContinuationToken', 'NextMarker'].map((tag) => `<${tag}>${page.at(-1)!.key}</${tag}>`) : [];
  return `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><KeyCount>${length}</KeyCount><MaxKeys>${most}</MaxKeys><IsTruncated>${more}</IsTruncated>${next.join('')}${contents.join('')}</ListBucketResult>`;
}
