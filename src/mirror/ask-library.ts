import type { LeasedAsset } from '../queue/leases.ts';
import type { AssetDetail } from '../source/schemas.ts';
import type { MirrorDeps } from './deps.ts';

/** The asset as the library has it now, with fresh links. */
export function askLibrary(
  { client, withToken }: Pick<MirrorDeps, 'client' | 'withToken'>,
  { asset, signal }: LeasedAsset,
): Promise<AssetDetail> {
  const request = (token: string) => client.getAsset({ token, assetId: asset.id, signal });
  return withToken(asset.connectionId, request, { timed: true });
}
