import { connectUrl } from '../oauth/authorize.ts';
import type { Sealer } from '../oauth/seal.ts';
import type { Delivery } from '../store/events/webhooks.ts';
import type { Store } from '../store/store.ts';

/** The body of a delivery. A reconnect link is made when it is sent, and is never stored. */
export async function messageOf(
  { store, sealer, publicUrl }: { store: Store; sealer: Sealer; publicUrl: string },
  { kind, at, assetId, data, ...delivery }: Delivery,
) {
  const asset = assetId === null ? undefined : await store.assets.get(assetId);
  const connectionId = delivery.connectionId ?? asset?.connectionId ?? null;
  const connection = connectionId === null ? undefined : await store.connections.get(connectionId);
  const link =
    kind === 'connection.disconnected' && connectionId !== null
      ? connectUrl(sealer, { publicUrl, connectionId, madeAt: await store.now() })
      : undefined;
  return {
    type: kind,
    timestamp: at.toISOString(),
    data: {
      connectionId,
      ...(connection && {
        user: { id: connection.userId, name: connection.userName, email: connection.userEmail },
        tags: connection.tags,
      }),
      ...(assetId !== null && { assetId, companyId: asset?.companyId ?? null, name: asset?.name ?? null }),
      ...data,
      ...(link && { reconnectUrl: link.url, reconnectUrlExpiresAt: link.expiresAt }),
    },
  };
}
