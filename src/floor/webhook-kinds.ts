/** The kinds of events that webhooks deliver. `true`: also to an endpoint that names no kinds. */
const kinds = {
  'connection.disconnected': true,
  'connection.recovered': true,
  'company.gained': true,
  'company.lost': true,
  'company.held': true,
  'sync.failed': true,
  'bucket.differs': true,
  'drill.passed': true,
  'drill.failed': true,
  'asset.failed': true,
  'asset.damaged': true,
  // These happen once per asset: too many messages for most endpoints.
  'asset.mirrored': false,
  'asset.replaced': false,
  'asset.transcript': false,
  'asset.gone': false,
};
export type WebhookKind = keyof typeof kinds;

export const webhookKinds = Object.keys(kinds) as WebhookKind[];
export const defaultWebhookKinds = webhookKinds.filter((kind) => kinds[kind]);

/** The id of the endpoint in WEBHOOK_URL. */
export const environmentEndpoint = 'environment';
