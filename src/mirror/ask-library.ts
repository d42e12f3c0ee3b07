import { storable } from '../floor/errors.ts';
import type { LeasedAsset } from '../queue/leases.ts';
import type { AssetDetail } from '../source/schemas.ts';
import { note } from '../store/assets/history.ts';
import type { MirrorDeps } from './deps.ts';

/** The asset as the library has it now, with fresh links. */
export async function askLibrary(
  { client, withToken }: Pick<MirrorDeps, 'client' | 'withToken'>,
  { asset, lease, signal }: LeasedAsset,
): Promise<AssetDetail> {
  const request = (token: string) => client.getAsset({ token, assetId: asset.id, signal });
  const detail = await withToken(asset.connectionId, request, { timed: true });
  note(lease, 'library_answered', { status: detail.status == null ? null : storable(detail.status) });
  return detail;
}
