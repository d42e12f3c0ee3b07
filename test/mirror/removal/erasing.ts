import type { Scene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

/** What the API answers about an erasure that has ended. */
export type Certificate = {
  objects: number;
  bytes: number;
  left: number;
  assets: { erased: number; held: number };
  erased: { sha256: string; objects: number; bytes: number }[];
  notErased: { sha256: string; reason: string }[];
  remaining: { key: string; versionId: string | null; lockedUntil: string | null }[];
};

/** A signal that never comes. */
export const signal = new AbortController().signal;
export const keyTemplate = '{companyId}/{projectId}/{assetId}/{filename}';

/** Requests an erasure and waits for its end. */
export async function erase(scene: Scene, request: object): Promise<Certificate> {
  const { id } = await scene.mirror.api('POST', '/erasures', { reason: 'requested', ...request });
  await until('the erasure to end', async () => (await scene.mirror.api('GET', `/erasures/${id}`)).status === 'done');
  return scene.mirror.api('GET', `/erasures/${id}/certificate`);
}

/** A film that is mirrored completely. */
export async function mirroredFilm(scene: Scene, more: object = {}): Promise<string> {
  const id = await scene.film(more);
  await scene.resync();
  await scene.mirror.quiet();
  // A verification that still runs may name the asset later.
  await scene.checked();
  return id;
}
