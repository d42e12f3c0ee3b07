/** The kinds of events that webhooks deliver. */
export const webhookKinds = [
  'connection.disconnected',
  'connection.recovered',
  'sync.failed',
  'asset.failed',
  'asset.mirrored',
] as const;
export type WebhookKind = (typeof webhookKinds)[number];
