import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import {
  GetObjectCommand,
  ListMultipartUploadsCommand,
  paginateListObjectsV2,
  type S3Client,
} from '@aws-sdk/client-s3';
import type { World } from '../world.ts';

export type Objects = ReturnType<typeof openObjects>;

export function openObjects(world: World) {
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

export const workshop = '.asset-mirror-tmp';

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

export async function digestOf(body: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of body) hash.update(chunk);
  return hash.digest('hex');
}

export function digestOfChunks(chunks: Iterable<Buffer>): string {
  const hash = createHash('sha256');
  for (const chunk of chunks) hash.update(chunk);
  return hash.digest('hex');
}

export async function textOf(body: Readable): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of body) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
