import { newHttpLine } from '../../support/http-line.ts';
import type { S3Server } from '../../support/services.ts';
import { newBucket, openBucket } from '../grounds.ts';

export type BehindLine = Awaited<ReturnType<typeof newBucketBehindLine>>;

/** A new bucket, and a store in it whose requests pass a line that can answer them instead. */
export async function newBucketBehindLine(server: S3Server) {
  const ground = await newBucket(server);
  const line = await newHttpLine(server.endpoint);
  const storage = await openBucket({ ...server, endpoint: line.endpoint }, { bucket: ground.bucket });
  return {
    ...{ ground, line, storage },
    async close(): Promise<void> {
      await storage.close();
      await line.close();
      await ground.clear();
    },
  };
}
