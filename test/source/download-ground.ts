import { randomBytes } from 'node:crypto';
import type { Throttle } from '../../src/source/bandwidth.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createDownloader, type Download } from '../../src/source/download.ts';
import { createAgent } from '../../src/source/http.ts';
import type { MinRate } from '../../src/source/min-rate.ts';
import { connect, startTestLibrary } from '../support/library.ts';
import { until } from '../support/until.ts';
import { answer, type Bare, startBare } from './bare.ts';

export const bytes = randomBytes(2_000_000);
export const etag = '"one"';
export const never = new AbortController().signal;

/** A library and a bare server in this process, and downloads from them. */
export async function newDownloadGround() {
  const agents: ReturnType<typeof createAgent>[] = [];
  const { library, admin } = await startTestLibrary();
  const bare = await startBare();
  const companyId = (await admin.addCompany({ name: 'First', userIds: ['usr_ada'] })).id;
  const token = (await connect(library)).access_token;

  /**
   * With one socket only: if it is not released, the next request hangs. The servers are in this process, which may itself stand
   * still: a test that sets `stallMs` or `minRate` leaves a second or more for that.
   */
  function downloader(
    options: { stallMs?: number; connections?: number; referer?: string; throttle?: Throttle; minRate?: MinRate } = {},
  ) {
    const { connections = 1, ...others } = options;
    const dispatcher = createAgent({ connections });
    agents.push(dispatcher);
    return createDownloader({ referer: library.appUrl, dispatcher, stallMs: 60_000, ...others });
  }

  /** A file at the library, and a link to it that counts its renewals. */
  async function newFile(content = bytes) {
    const { id } = await admin.addAsset({
      companyId,
      name: 'file.bin',
      mimeType: 'application/octet-stream',
      assetType: 'documents',
      content: { base64: content.toString('base64') },
    });
    const dispatcher = createAgent({ connections: 1 });
    agents.push(dispatcher);
    const client = new LibraryClient({ apiUrl: library.apiUrl, dispatcher });
    const read = async () => (await client.getAsset({ token, assetId: id, signal: never })).download!.url!;
    const link = {
      url: await read(),
      renewed: 0,
      renew: () => {
        link.renewed++;
        return read();
      },
    };
    await admin.clearRequests();
    const requests = () => admin.requests({ endpoint: 'media', assetId: id });
    return { id, link, requests };
  }

  /** A link to the bare server. */
  const bareLink = (renew: () => Promise<string> = async () => bare.url) => ({ url: bare.url, renew });

  return {
    library,
    admin,
    bare,
    downloader,
    newFile,
    bareLink,

    /** After each test. */
    async reset() {
      await admin.clearFaults();
      await Promise.all(agents.splice(0).map((agent) => agent.destroy()));
      await until('no connection to be left', () => bare.sockets === 0);
    },
    async close() {
      await bare.close();
      await library.close();
    },
  };
}

export async function bytesOf(download: Download): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of download.body) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** What arrived before the error, and the error. */
export async function broken(download: Download): Promise<{ arrived: Buffer; error: Error & { cause?: unknown } }> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of download.body) chunks.push(chunk);
  } catch (error) {
    return { arrived: Buffer.concat(chunks), error: error as Error };
  }
  throw new Error('the body was whole');
}

/** The first `sent` bytes of a file, then the connection drops. */
export const cutAt =
  (sent: number, headers: Record<string, string> = { etag }): Parameters<Bare['answer']>[0] =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': String(bytes.length), ...headers });
    response.write(bytes.subarray(0, sent), () => response.socket?.destroySoon());
  };

/** The first `sent` bytes of a file, then nothing. */
export const stallAt =
  (sent: number, headers: Record<string, string> = { etag }): Parameters<Bare['answer']>[0] =>
  (_request, response) => {
    response.writeHead(200, { 'content-length': String(bytes.length), ...headers });
    response.write(bytes.subarray(0, sent));
  };

/** The file from this byte on, as the answer to a range. */
export const rest = (start: number, headers: Record<string, string> = {}, body: Buffer = bytes.subarray(start)) =>
  answer(206, body, { etag, 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}`, ...headers });
