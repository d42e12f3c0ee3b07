import { assetFileOperations } from './assets/asset-files.ts';
import { assetSearchOperations } from './assets/asset-search.ts';
import { assetZipOperations } from './assets/asset-zip.ts';
import { assetOperations } from './assets/assets.ts';
import { versionOperations } from './assets/versions.ts';
import { assuranceOperations } from './assurance/assurance.ts';
import { assuranceReportOperations } from './assurance/assurance-report.ts';
import { drillOperations } from './assurance/drills.ts';
import { scrubOperations } from './assurance/scrub.ts';
import { verificationOperations } from './assurance/verifications.ts';
import { connectLinkOperations } from './connections/connect-links.ts';
import { connectionSettingsOperations } from './connections/connection-settings.ts';
import { connectionOperations } from './connections/connections.ts';
import { planOperations } from './connections/full-sync-plan.ts';
import { projectOperations } from './connections/projects.ts';
import { syncOperations } from './connections/syncs.ts';
import type { OperationsDeps } from './deps.ts';
import { changeOperations } from './events/changes.ts';
import { deliveryOperations } from './events/deliveries.ts';
import { eventOperations } from './events/events.ts';
import { webhookOperations } from './events/webhooks.ts';
import { apiTokenOperations } from './operators/api-tokens.ts';
import { auditOperations } from './operators/audit.ts';
import { keyOperations } from './operators/encryption-keys.ts';
import { meOperations } from './operators/me.ts';
import { sessionOperations } from './operators/sessions.ts';
import { erasureOperations } from './removal/erasures.ts';
import { removalOperations } from './removal/removals.ts';
import { settingsOperations } from './status/settings.ts';
import { statusOperations } from './status/status.ts';
import { historyOperations } from './status/throughput.ts';
import { upcomingOperations } from './status/upcoming.ts';

export type Operations = ReturnType<typeof createOperations>;

/**
 * All operator actions; one file per family. HTTP, CLI and demo only call them. Many parse a request that HTTP has parsed
 * before, to fill in defaults for other callers: a schema must accept what it returns.
 */
export function createOperations(deps: OperationsDeps) {
  const connections = connectionOperations(deps);
  const projects = projectOperations(deps);
  return {
    ...connections,
    ...connectLinkOperations(deps),
    ...connectionSettingsOperations({ ...deps, ...projects }, connections.connection),
    ...planOperations(deps),
    ...projects,
    ...statusOperations(deps),
    ...assetOperations(deps),
    ...assetSearchOperations(deps),
    ...assetZipOperations(deps),
    ...assetFileOperations(deps),
    ...versionOperations(deps),
    ...syncOperations({ ...deps, ...projects }),
    ...verificationOperations(deps),
    ...drillOperations(deps),
    ...assuranceOperations(deps),
    ...assuranceReportOperations(deps),
    ...eventOperations(deps),
    ...auditOperations(deps),
    ...meOperations(deps),
    ...sessionOperations(deps),
    ...apiTokenOperations(deps),
    ...changeOperations(deps),
    ...historyOperations(deps),
    ...upcomingOperations(deps),
    ...keyOperations(deps),
    ...scrubOperations(deps),
    ...settingsOperations(deps),
    ...webhookOperations(deps),
    ...deliveryOperations(deps),
    ...removalOperations(deps),
    ...erasureOperations(deps),
  };
}
