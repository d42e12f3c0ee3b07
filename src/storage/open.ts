import type { Log } from '../floor/log.ts';
import { openDirectory } from './directory/directory.ts';
import type { S3Options } from './s3/client.ts';
import type { Storage } from './storage.ts';

/** STORAGE_URL, parsed. */
type Target = { kind: 'directory'; path: string } | ({ kind: 's3' } & Pick<S3Options, 'bucket' | 'prefix'>);

/** The connections to S3 of commands and drills, which mirror nothing. */
const connectionsOfCommands = 32;

/** Opens the store of the configuration. Its first use reports problems. `concurrency`: how many assets are mirrored at once. */
export async function openStorage(
  {
    target,
    s3,
    contentHash = false,
  }: {
    target: Target;
    s3: Omit<S3Options, 'bucket' | 'prefix' | 'connections' | 'memory' | 'contentHash'>;
    contentHash?: boolean;
  },
  { log, concurrency, memory }: Pick<S3Options, 'memory'> & { log: Log; concurrency?: number },
): Promise<Storage> {
  if (target.kind === 'directory') return openDirectory({ ...target, contentHash, log });
  const { openS3 } = await import('./s3/s3.ts');
  // An asset may have several parts in flight at once, and its sidecars.
  const connections = concurrency === undefined ? connectionsOfCommands : concurrency * 5 + 8;
  return openS3({ ...target, ...s3, contentHash, connections, memory });
}
