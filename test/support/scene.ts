import type { Timings } from '../../src/floor/timings.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { ask } from './database.ts';
import { type Admin, type Library, type LibraryOptions, startTestLibrary, type Upload } from './library.ts';
import { contentOf, type Ground, keysOf, newGround, startMirror } from './mirror.ts';
import { freePort } from './ports.ts';
import type { S3Server } from './services.ts';
import { until } from './until.ts';

type Mirror = Awaited<ReturnType<typeof startMirror>>;
export type Scene = Awaited<ReturnType<typeof newScene>>;

interface SceneOptions {
  environment?: Record<string, string>;
  library?: Partial<LibraryOptions>;
  redis?: string | undefined;
  s3?: S3Server | undefined;
  /** Changes of the environment, such as the address of a proxy that injects faults. */
  through?: (environment: Record<string, string>) => Promise<Record<string, string>>;
  role?: 'all' | 'web';
  timings?: Timings;
}

/** A library with the company `acme`, a connected mirror in this process, and helpers for both. */
export async function newScene(options: SceneOptions = {}) {
  const port = await freePort();
  const ground: Ground = await newGround({ port, ...options });
  Object.assign(ground.environment, await options.through?.(ground.environment));
  const started: { library: Library; admin: Admin } = await startTestLibrary({
    redirectUris: [`${ground.publicUrl}/oauth/callback`],
    ...options.library,
  });
  const { library, admin } = started;
  await admin.addCompany({ id: 'acme', name: 'Acme', userIds: [library.users[0]!.id] });
  let mirror = await startMirror(ground, library, options.role);
  const connectionId = await mirror.connect();
  if (options.role !== 'web') await mirror.quiet();

  return {
    query: <T extends object>(sql: string) => ask(ground.environment.DATABASE_URL!, sql) as Promise<T[]>,
    ground,
    library,
    admin,
    connectionId,
    storage: ground.storage,
    get mirror() {
      return mirror;
    },

    ...uploadsTo(admin),

    /** Requests a full sync. */
    async resync(request: object = { mode: 'full' }): Promise<string> {
      return (await mirror.api('POST', `/connections/${connectionId}/resync`, request)).syncId;
    },

    /** Waits until no verification runs, such as the one after each requested full sync. */
    async checked(): Promise<void> {
      const none = ({ waiting, running }: { waiting: number; running: number }) => waiting + running === 0;
      await until('the bucket to be compared', async () => {
        const { syncs, verifications } = await mirror.api('GET', '/status');
        return none(syncs) && none(verifications);
      });
    },

    ...storedBy(() => mirror, ground.storage),

    /** Restarts the mirror on the same stores. */
    async restart(environment: Record<string, string> = {}): Promise<void> {
      await mirror.stop();
      Object.assign(ground.environment, environment);
      mirror = await startMirror(ground, library);
    },

    async close(): Promise<void> {
      await mirror.stop();
      await library.close();
      await ground.clear();
    },
  };
}

/** What a test uploads to the company `acme`. */
function uploadsTo(admin: Admin) {
  return {
    /** Uploads to the library, with an old date by default, without a sync. */
    async upload(asset: Partial<Upload> = {}): Promise<string> {
      const added = await admin.addAsset({
        companyId: 'acme',
        name: 'file.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: Date.UTC(2024, 1, 29),
        thumbnail: false,
        content: { text: 'hello' },
        ...asset,
      });
      return added.id;
    },

    /** A film with everything that an asset can have. */
    film(asset: Partial<Upload> = {}): Promise<string> {
      return this.upload({
        name: 'clip.mp4',
        mimeType: 'video/mp4',
        assetType: 'videos',
        hasTranscript: true,
        transcript: { language: 'de', durationSec: 3, text: 'Grüß Gott', vtt: 'WEBVTT\n\n', words: null },
        thumbnail: true,
        ...asset,
      });
    },
  };
}

/** What is stored of an asset. `mirror`: the one that runs now. */
function storedBy(mirror: () => Mirror, storage: Storage) {
  return {
    /** The stored media file; undefined if there is none. */
    async media(id: string): Promise<Buffer | undefined> {
      const asset = await mirror().asset(id);
      return asset?.key ? contentOf(storage, asset.key) : undefined;
    },

    async record(id: string) {
      const asset = await mirror().asset(id);
      const content = asset?.key && (await contentOf(storage, `${asset.key}.asset.json`));
      return content ? JSON.parse(content.toString()) : undefined;
    },

    /** All stored objects of an asset. */
    async keys(id: string): Promise<string[]> {
      return (await keysOf(storage)).filter((key) => key.includes(`/${id}/`));
    },
  };
}
