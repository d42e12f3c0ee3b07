import { expect } from 'vitest';
import type { S3Server } from '../../support/services.ts';
import { until } from '../../support/until.ts';
import { bytesOf, streaming } from '../bodies.ts';
import { newBucket, openBucket } from '../grounds.ts';
import { newLine, type Trouble } from '../line.ts';

export type FaultyStore = Awaited<ReturnType<typeof newFaultyStore>>;

/** A new bucket, and a store in it whose connections can have faults. */
export async function newFaultyStore(server: S3Server) {
  const ground = await newBucket(server);
  const line = await newLine(server.endpoint);
  const storage = await openBucket(server, { bucket: ground.bucket, endpoint: line.endpoint });
  await storage.check();
  return {
    ...{ ground, line, storage },
    /** `put` fails, leaves nothing, releases the body and its sockets, and works again on a good connection. */
    async expectFailure(
      trouble: Trouble,
      length: number,
      declared: number | undefined,
      body = streaming(bytesOf(length)),
    ) {
      await ground.storage.put('line', 'old');
      line.set(trouble);
      const error = await storage.put('line', body, { bytes: declared }).then(
        () => undefined,
        (reason) => reason,
      );
      expect(error).toBeInstanceOf(Error);
      expect(body.destroyed).toBe(true);
      line.set({});
      await until('its sockets closed', () => line.troubled === 0);
      expect(await ground.storage.head('line')).toMatchObject({ bytes: 3 });
      await storage.put('line', streaming(bytesOf(length)), { bytes: declared });
      return error;
    },
    async close() {
      await storage.close();
      await line.close();
      await ground.clear();
    },
  };
}
