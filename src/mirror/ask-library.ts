import { storableText } from '../floor/errors.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import type { AssetDetail } from '../source/schemas.ts';
import { note } from '../store/assets/history.ts';
import type { MirrorDeps } from './deps.ts';

/** The asset as the library has it now, with fresh links. */
export function askLibrary(
  { client, withToken }: Pick<MirrorDeps, 'client' | 'withToken'>,
  { asset, signal }: LeasedAsset,
): Promise<AssetDetail> {
  const request = (token: string) => client.getAsset({ token, assetId: asset.id, signal });
  return withToken(asset.connectionId, request, { timed: true });
}

/** Adds the answer to the history of the asset. */
export function noteAnswer({ lease }: LeasedAsset, { status }: AssetDetail): void {
  note(lease, 'library_answered', { status: status == null ? null : storableText(status) });
}
