/** The answers of the operator API: made from the schemas that validate them. */
import type { z } from 'zod';
import type { assetAnswer, assetList } from '../../operations/assets.ts';
import type { connectionAnswer } from '../../operations/connections.ts';
import type { eventAnswer } from '../../operations/events.ts';
import type { planAnswer, planProgress } from '../../operations/plan.ts';
import type { projectList } from '../../operations/projects.ts';
import type { statusAnswer } from '../../operations/status.ts';
import type { syncAnswer } from '../../operations/syncs.ts';
import type { historyAnswer } from '../../operations/throughput.ts';
import type { upcomingAnswer } from '../../operations/upcoming.ts';
import type { verificationAnswer, verificationList } from '../../operations/verifications.ts';
import type { versionList } from '../../operations/versions.ts';

export type Status = z.infer<typeof statusAnswer>;
export type Connection = z.infer<typeof connectionAnswer>;
export type AssetSummary = z.infer<typeof assetList>['assets'][number];
export type Asset = z.infer<typeof assetAnswer>;
export type Project = z.infer<typeof projectList>['projects'][number];
export type Verification = z.infer<typeof verificationAnswer>;
export type VerificationSummary = z.infer<typeof verificationList>['verifications'][number];
export type Sync = z.infer<typeof syncAnswer>;
export type MirrorEvent = z.infer<typeof eventAnswer>;
export type History = z.infer<typeof historyAnswer>;
export type Upcoming = z.infer<typeof upcomingAnswer>;
export type Plan = z.infer<typeof planAnswer>;
export type PlanProgress = z.infer<typeof planProgress>;
export type AssetVersion = z.infer<typeof versionList>['versions'][number];
