import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GetObjectCommand, ListObjectsV2Command, S3Client } from '@aws-sdk/client-s3';
import { Redis } from 'ioredis';
import pg from 'pg';

/** All that a mirror has written to its database, except for the sealed tokens, as text by table. */
export async function databaseAsText(url: string): Promise<Map<string, string>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string }>(
      `SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
       WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`,
    );
    const texts = new Map<string, string>();
    for (const { name } of rows) {
      const found = await client.query<{ row: string }>(`SELECT (to_jsonb(t) - 'tokens')::text AS row FROM ${name} t`);
      texts.set(name, found.rows.map(({ row }) => row).join('\n'));
    }
    return texts;
  } finally {
    await client.end();
  }
}

/** All keys of a Redis database with their values. */
export async function redisAsText(url: string): Promise<string> {
  const redis = new Redis(url);
  try {
    const lines: string[] = [];
    for (const key of await redis.keys('*')) {
      const type = await redis.type(key);
      const values: Record<string, () => Promise<unknown>> = {
        string: () => redis.get(key),
        hash: () => redis.hgetall(key),
        list: () => redis.lrange(key, 0, -1),
        set: () => redis.smembers(key),
        zset: () => redis.zrange(key, '0', '-1'),
        stream: () => redis.xrange(key, '-', '+'),
      };
      const value = await values[type]?.();
      lines.push(`${key} ${JSON.stringify(value)}`);
    }
    return lines.join('\n');
  } finally {
    redis.disconnect();
  }
}

/** All files below a directory: their paths and contents. */
export async function filesAsText(directory: string): Promise<string> {
  const files = (await readdir(directory, { withFileTypes: true, recursive: true })).filter((entry) => entry.isFile());
  const texts = files.map(
    async ({ parentPath, name }) => `${parentPath}/${name} ${await readFile(join(parentPath, name))}`,
  );
  return (await Promise.all(texts)).join('\n');
}

/** All objects of the bucket that the environment names: keys, headers and contents. */
export async function bucketAsText(environment: Record<string, string>): Promise<string> {
  const [, Bucket] = /^s3:\/\/([^/]+)/.exec(environment.STORAGE_URL!)!;
  const client = new S3Client({
    endpoint: environment.S3_ENDPOINT!,
    region: environment.S3_REGION!,
    forcePathStyle: true,
  });
  const texts: string[] = [];
  for (let after: string | undefined, more = true; more; ) {
    const page = await client.send(new ListObjectsV2Command({ Bucket, StartAfter: after }));
    for (const { Key } of page.Contents ?? []) {
      const { Body, $metadata: _, ...headers } = await client.send(new GetObjectCommand({ Bucket, Key }));
      texts.push(`${Key} ${JSON.stringify(headers)} ${await Body!.transformToString('latin1')}`);
      after = Key;
    }
    more = page.IsTruncated === true;
  }
  client.destroy();
  return texts.join('\n');
}
