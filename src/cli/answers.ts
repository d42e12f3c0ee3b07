import type { Operations } from '../operations/operations.ts';

export type { AssetQuery } from '../operations/assets.ts';
export type { ConnectionSettingsRequest } from '../operations/connection-settings.ts';
export type { ConnectionQuery } from '../operations/connections.ts';
export type { EventFilter, EventQuery } from '../operations/events.ts';
export type { Plan, PlanProgress } from '../operations/plan.ts';
export type { SettingsRequest } from '../operations/settings.ts';
export type { ResyncRequest, SyncQuery } from '../operations/syncs.ts';
export type { VerifyRequest } from '../operations/verifications.ts';

type Answer<Verb extends keyof Operations> = Awaited<ReturnType<Operations[Verb]>>;
export type Verification = Answer<'verification'>;
export type TestedWebhook = Answer<'testWebhook'>;
export type RotatedKeys = Answer<'rotateKeys'>;
export type ChangedConnection = Answer<'changeConnection'>;
export type Settings = Answer<'settings'>;
export type Status = Answer<'status'>;
export type ConnectionList = Answer<'connections'>;
export type ConnectionSummary = Answer<'connection'>;
export type Disconnected = Answer<'disconnect'>;
export type AssetList = Answer<'assets'>;
export type Asset = Answer<'asset'>;
export type VersionList = Answer<'versions'>;
export type SyncList = Answer<'syncs'>;
export type Sync = Answer<'sync'>;
export type EventList = Answer<'events'>;
export type MirrorEvent = EventList['events'][number];
