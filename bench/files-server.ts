import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** COUNT files of BYTES each behind plain HTTP with an index page, as rclone lists them; Range is served. */
const [count, bytes] = process.argv.slice(2).map(Number) as [number, number];
const block = Buffer.alloc(Math.min(bytes, 1 << 20), 'asset-mirror ');
const index = `<html><body>${Array.from({ length: count }, (_, i) => `<a href="file-${i}.bin">file-${i}.bin</a>`).join('\n')}</body></html>`;
const modified = new Date(Date.UTC(2024, 0, 1)).toUTCString();

const server = createServer((request, response): void => {
  if (request.url === '/') return void response.setHeader('content-type', 'text/html').end(index);
  const [, from = '0', to = String(bytes - 1)] = /^bytes=(\d+)-(\d+)?$/.exec(request.headers.range ?? '') ?? [];
  const [first, last] = [Number(from), Math.min(Number(to), bytes - 1)];
  response.statusCode = request.headers.range ? 206 : 200;
  if (request.headers.range) response.setHeader('content-range', `bytes ${first}-${last}/${bytes}`);
  response.setHeader('content-length', last - first + 1);
  response.setHeader('last-modified', modified);
  response.setHeader('accept-ranges', 'bytes');
  if (request.method === 'HEAD') return void response.end();
  let left = last - first + 1;
  const more = (): void => {
    while (left > 0) {
      const piece = left >= block.length ? block : block.subarray(0, left);
      left -= piece.length;
      if (!response.write(piece)) return void response.once('drain', more);
    }
    response.end();
  };
  more();
}).listen(0, '127.0.0.1', () => process.send!((server.address() as AddressInfo).port));
process.on('disconnect', () => process.exit());
