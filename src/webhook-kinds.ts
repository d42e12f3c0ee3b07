/** What an endpoint may be told: the kinds of events that are delivered. */
export const webhookKinds = [
  'connection.disconnected',
  'connection.recovered',
  'sync.failed',
  'asset.failed',
  'asset.mirrored',
] as const;
export type WebhookKind = (typeof webhookKinds)[number];
