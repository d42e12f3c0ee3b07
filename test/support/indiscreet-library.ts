import type { Admin } from './library.ts';
import { canaries, indiscreet, link } from './redaction.ts';

/** Adds assets that fail in all ways; the library reveals too much in its errors. */
export async function addFaultyAssets(admin: Admin): Promise<void> {
  const upload = (asset: object = {}) =>
    admin
      .addAsset({
        companyId: 'acme',
        name: 'file.bin',
        mimeType: 'application/octet-stream',
        assetType: 'documents',
        uploadDate: Date.UTC(2024, 1, 29),
        content: { seed: 'file', size: 300_000 },
        ...asset,
      })
      .then(({ id }) => id);
  const transcript = { language: 'de', durationSec: 3, text: 'Grüß Gott', vtt: 'WEBVTT\n\n', words: null };
  await upload({ name: 'clip.mp4', mimeType: 'video/mp4', assetType: 'videos', hasTranscript: true, transcript });
  const at = async (endpoint: 'asset' | 'media', fault: object) =>
    admin.addFault({ endpoint, assetId: await upload(), ...fault });
  await at('asset', { status: 500, body: indiscreet, times: 4 });
  await at('asset', { status: 200, body: { asset: { id: 5, name: link, status: canaries.access } } });
  await at('asset', { status: 200, body: JSON.stringify(indiscreet) });
  await at('asset', { status: 404, body: indiscreet, times: 1 });
  await at('media', { status: 403, body: indiscreet, times: 2 });
  await at('media', {
    status: 302,
    headers: { location: `http://127.0.0.1:1/a?signature=${canaries.signature}` },
    times: 1,
  });
  await at('media', {
    status: 302,
    headers: { location: `http://[${canaries.access}/?signature=${canaries.signature}` },
    times: 1,
  });
  await at('media', { headers: { 'content-encoding': canaries.access }, times: 1 });
  await at('media', { cutAfter: 100_000, times: 1 });
  await at('media', { dropAnswer: true, times: 1 });
}

/** The errors of a sync, and of the request for its token. */
export async function addFaultsOfSyncs(admin: Admin): Promise<void> {
  await admin.addFault({ endpoint: 'assets', status: 500, body: indiscreet, times: 1 });
  await admin.addFault({ endpoint: 'me', status: 400, body: indiscreet, times: 1 });
  await admin.addFault({ endpoint: 'token', status: 500, body: indiscreet, times: 1 });
  await admin.expireTokens();
}
