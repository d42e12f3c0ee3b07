import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/**
 * A minimal S3 server: it reads bodies, returns the checksum that it received, and keeps only the first few KiB, so that the
 * cost of its clients can be measured. It checks nothing, not even signatures. With OBJECTS and BYTES it lists `file-0.bin`, `file-1.bin`, … in every bucket.
 */
const [objects = 0, bytes = 0] = process.argv.slice(2).map(Number);
const names = Array.from({ length: objects }, (_, i) => `file-${i}.bin`).sort();
const placeOf = new Map(names.map((name, i) => [name, i]));
const kept = new Map<string, { size: number; body: Buffer; crc32: string | undefined }>();
const keptBytes = 8 * 1024;
const etag = '"00000000000000000000000000000000"';
const modified = new Date(Date.UTC(2024, 0, 1));

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
      if (size < keptBytes) head.push(chunk);
      size += chunk.length;
      tail = chunk.length >= 200 ? chunk.subarray(-200) : Buffer.concat([tail, chunk]).subarray(-200);
    });
    request.on('end', () => {
      const crc32 = declared ?? /x-amz-checksum-crc32:(\S+)/.exec(tail.toString('latin1'))?.[1];
      const body = Buffer.concat(head).subarray(0, keptBytes);
      kept.set(pathname, { size: Number(request.headers['x-amz-decoded-content-length'] ?? size), body, crc32 });
      response.setHeader('etag', etag);
      if (crc32) response.setHeader('x-amz-checksum-crc32', crc32).setHeader('x-amz-checksum-type', 'FULL_OBJECT');
      response.end();
    });
    return;
  }
  const object = kept.get(pathname);
  if (request.method === 'DELETE') {
    kept.delete(pathname);
    return void response.writeHead(204).end();
  }
  if (!object) {
    const missing = '<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>';
    return void response.writeHead(404, { 'content-type': 'application/xml' }).end(missing);
  }
  response.setHeader('etag', etag).setHeader('last-modified', modified.toUTCString());
  response.setHeader('content-length', request.method === 'HEAD' ? object.size : object.body.length);
  if (object.crc32) response.setHeader('x-amz-checksum-crc32', object.crc32);
  response.end(request.method === 'HEAD' ? undefined : object.body);
}).listen(0, '127.0.0.1', () => process.send!(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
server.keepAliveTimeout = 60_000;
// How many objects it was given.
process.on('message', () => process.send!(kept.size));
process.on('disconnect', () => process.exit());

/** A page of ListObjects or ListObjectsV2. The next one begins after the last name of this one. */
function list(query: URLSearchParams): string {
  const behind = query.get('continuation-token') ?? query.get('marker') ?? query.get('start-after');
  const first = behind ? placeOf.get(behind)! + 1 : 0;
  const most = Math.min(1000, Number(query.get('max-keys') ?? 1000));
  const page = query.get('prefix') ? [] : names.slice(first, first + most);
  const more = page.length > 0 && first + page.length < names.length;
  const contents = page.map(
    (name) =>
      `<Contents><Key>${name}</Key><LastModified>${modified.toISOString()}</LastModified><ETag>${etag}</ETag><Size>${bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>`,
  );
  const next = more ? ['NextContinuationToken', 'NextMarker'].map((tag) => `<${tag}>${page.at(-1)}</${tag}>`) : [];
  return `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><KeyCount>${page.length}</KeyCount><MaxKeys>${most}</MaxKeys><IsTruncated>${more}</IsTruncated>${next.join('')}${contents.join('')}</ListBucketResult>`;
}
