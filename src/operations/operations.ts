import { apiTokenOperations } from './api-tokens.ts';
import { assetFileOperations } from './asset-files.ts';
import { assetSearchOperations } from './asset-search.ts';
import { assetZipOperations } from './asset-zip.ts';
import { assetOperations } from './assets.ts';
import { assuranceOperations } from './assurance.ts';
import { assuranceReportOperations } from './assurance-report.ts';
import { auditOperations } from './audit.ts';
import { changeOperations } from './changes.ts';
import { connectLinkOperations } from './connect-links.ts';
import { connectionSettingsOperations } from './connection-settings.ts';
import { connectionOperations } from './connections.ts';
import { deliveryOperations } from './deliveries.ts';
import type { OperationsDeps } from './deps.ts';
import { drillOperations } from './drills.ts';
import { keyOperations } from './encryption-keys.ts';
import { erasureOperations } from './erasures.ts';
import { eventOperations } from './events.ts';
import { planOperations } from './full-sync-plan.ts';
import { meOperations } from './me.ts';
import { projectOperations } from './projects.ts';
import { removalOperations } from './removals.ts';
import { scrubOperations } from './scrub.ts';
import { sessionOperations } from './sessions.ts';
import { settingsOperations } from './settings.ts';
import { statusOperations } from './status.ts';
import { syncOperations } from './syncs.ts';
import { historyOperations } from './throughput.ts';
import { upcomingOperations } from './upcoming.ts';
import { verificationOperations } from './verifications.ts';
import { versionOperations } from './versions.ts';
import { webhookOperations } from './webhooks.ts';

export type Operations = ReturnType<typeof createOperations>;

/** All operator actions; one file per family. HTTP, CLI and demo only call them. */
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
