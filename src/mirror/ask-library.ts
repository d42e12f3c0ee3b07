import type { LeasedAsset } from '../queue/leases.ts';
import type { AssetDetail } from '../source/schemas.ts';
import type { MirrorDeps } from './deps.ts';

/** The asset as the library has it now, with fresh links. */
export function askLibrary(
  { client, withToken }: Pick<MirrorDeps, 'client' | 'withToken'>,
  { asset, signal }: LeasedAsset,
): Promise<AssetDetail> {
  return withToken(asset.connectionId, (token) => client.getAsset({ token, assetId: asset.id, signal }));
}
