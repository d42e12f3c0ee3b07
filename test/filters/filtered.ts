import { expect } from 'vitest';
import type { FilterRule } from '../../src/floor/reason-codes.ts';
import type { SyncDeps } from '../../src/sync/deps.ts';
import type { Stage } from '../support/stage.ts';

/** Changes the settings of a connection. */
export const patch = (stage: Stage, connectionId: string, settings: object) =>
  stage.mirror.api('PATCH', `/connections/${connectionId}`, settings);

/** The recorded assets of a company by their id. */
export const rows = async (stage: Stage, companyId: string) =>
  Object.fromEntries((await stage.assets(companyId)).map((asset) => [asset.id, asset]));

/** The rule that excludes this value. */
export const excluded = (value: string, field: FilterRule['field'] = 'type'): FilterRule => ({
  list: 'exclude',
  field,
  value,
});

/** An asset that this rule skips. */
export const skipped = (rule: FilterRule) => ({
  state: 'pending',
  skipped: true,
  reason: { code: 'skipped_by_filter', ...rule },
  nextAt: null,
  queuedAt: null,
});

/** No names of any kind. */
export const nothing = { companyIds: [], projectIds: [], assetTypes: [] };

/** An asset that waits for a worker. */
export const waiting = { state: 'pending', skipped: false, reason: null, nextAt: expect.any(Date) };

/** A company with a film and a document, listed. */
export async function listed(stage: Stage, settings: object = {}, more: Partial<SyncDeps> = {}) {
  const { companyId, connectionId } = await stage.company();
  await patch(stage, connectionId, settings);
  const { id: projectId } = await stage.admin.addProject({ id: `${companyId}-p`, companyId, name: 'A project' });
  const [film] = await stage.upload(companyId, 1, { assetType: 'videos', projectId });
  const [text] = await stage.upload(companyId, 1);
  await stage.run(connectionId, more);
  await stage.sync(connectionId, 'full', {}, more);
  return { companyId, connectionId, projectId, film: film!, text: text! };
}
