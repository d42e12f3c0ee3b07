import type { Timings } from '../../src/timings.ts';
import { type Admin, type Library, type LibraryOptions, startTestLibrary, type Upload } from './library.ts';
import { contentOf, type Ground, keysOf, newGround, startMirror } from './mirror.ts';
import { freePort } from './ports.ts';
import type { S3Server } from './services.ts';
import { until } from './until.ts';

export type Scene = Awaited<ReturnType<typeof newScene>>;

/** A library with the company `acme`, a mirror in this process that is connected to it, and what tests do with the two. */
export async function newScene(
  options: {
    environment?: Record<string, string>;
    library?: Partial<LibraryOptions>;
    redis?: string | undefined;
    s3?: S3Server | undefined;
    /** What of the environment is reached in another way, such as over a line in which things go wrong. */
    through?: (environment: Record<string, string>) => Promise<Record<string, string>>;
    role?: 'all' | 'web';
    timings?: Timings;
  } = {},
) {
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
    ground,
    library,
    admin,
    connectionId,
    storage: ground.storage,
    get mirror() {
      return mirror;
    },

    /** Uploads to the library, long ago unless said otherwise, without telling the mirror. */
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

    /** Asks for a run over everything. */
    async resync(request: object = { mode: 'full' }): Promise<string> {
      return (await mirror.api('POST', `/connections/${connectionId}/resync`, request)).syncId;
    },

    /** Waits until nobody compares the bucket any more, as is done behind each full run that was asked for. */
    async checked(): Promise<void> {
      const none = ({ waiting, running }: { waiting: number; running: number }) => waiting + running === 0;
      await until(
        'the bucket to be compared',
        async () => {
          const { syncs, verifications } = await mirror.api('GET', '/status');
          return none(syncs) && none(verifications);
        },
        60_000,
      );
    },

    /** The media file as it lies in storage; undefined when there is none. */
    async media(id: string): Promise<Buffer | undefined> {
      const asset = await mirror.asset(id);
      return asset?.key ? contentOf(ground.storage, asset.key) : undefined;
    },

    async record(id: string) {
      const asset = await mirror.asset(id);
      const content = asset?.key && (await contentOf(ground.storage, `${asset.key}.asset.json`));
      return content ? JSON.parse(content.toString()) : undefined;
    },

    /** Everything that lies in storage for an asset. */
    async keys(id: string): Promise<string[]> {
      return (await keysOf(ground.storage)).filter((key) => key.includes(`/${id}/`));
    },

    /** The same mirror again, on what it left behind. */
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
