import http from 'node:http';
import https from 'node:https';
import { pipeline } from 'node:stream/promises';
import { S3Client } from '@aws-sdk/client-s3';
import { SignatureV4 } from '@smithy/signature-v4';
import { request } from 'undici';
import type { S3Server } from '../test/support/services.ts';

/**
 * A plain client in Node.js: it only sends the signed requests, and checks, compares and stores nothing.
 */
export interface BareClient {
  s3: Pick<S3Server, 'endpoint' | 'region' | 'accessKey' | 'secretKey'>;
  bucket: string;
  /** One file from a link; or each small asset of company 1: the asset, its media, the media into S3, the answer into S3. */
  does: { link: string; bytes: number } | { origin: string; files: number; atOnce: number };
}

const { s3, bucket, does } = JSON.parse(process.argv[2]!) as BareClient;
const { protocol, hostname, port, host } = new URL(s3.endpoint);
const plain = protocol === 'https:' ? https : http;
const agent = new plain.Agent({ keepAlive: true });
const signer = new SignatureV4({
  credentials: { accessKeyId: s3.accessKey, secretAccessKey: s3.secretKey },
  region: s3.region,
  service: 's3',
  sha256: new S3Client({ region: s3.region }).config.sha256,
  uriEscapePath: false,
  applyChecksum: false,
});

async function put(key: string, bytes: number) {
  const path = `/${bucket}/${key}`;
  const unsigned = { 'content-length': String(bytes), 'x-amz-content-sha256': 'UNSIGNED-PAYLOAD' };
  const unsignedRequest = { method: 'PUT', protocol, hostname, path, headers: { host, ...unsigned } };
  const { headers } = await signer.sign(unsignedRequest);
  const call = plain.request({ agent, method: 'PUT', host: hostname, port, path, headers });
  const taken = new Promise<void>((resolve, reject) => {
    call.on('error', reject);
    call.on('response', (response) => {
      if (response.statusCode !== 200) reject(new Error(`PUT ${path}: ${response.statusCode}`));
      response.resume().on('end', resolve);
    });
  });
  return { call, taken };
}

async function copy(key: string, link: string, bytes: number): Promise<void> {
  const { body } = await request(link, { headers: { referer: 'http://127.0.0.1' } });
  const { call, taken } = await put(key, bytes);
  await Promise.all([pipeline(body, call), taken]);
}

async function assets(origin: string, files: number, atOnce: number): Promise<void> {
  let next = 0;
  const work = async () => {
    while (next < files) {
      const id = `asset-1-${next++}`;
      const { body } = await request(`${origin}/api/v1/assets/${id}`, { headers: { authorization: 'Bearer svca_1' } });
      const text = await body.text();
      const { asset } = JSON.parse(text) as { asset: { size: number; download: { url: string } } };
      await copy(`${id}.bin`, asset.download.url, asset.size);
      const record = await put(`${id}.json`, Buffer.byteLength(text));
      record.call.end(text);
      await record.taken;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}

await ('link' in does ? copy('bare.bin', does.link, does.bytes) : assets(does.origin, does.files, does.atOnce));
process.exit();
