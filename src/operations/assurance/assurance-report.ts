import { createHash } from 'node:crypto';
import { z } from 'zod';
import { dayMs } from '../../floor/units.ts';
import { version } from '../../floor/version.ts';
import { remembered } from '../../store/prune.ts';
import { dayOf } from '../../verify/publish/inventory.ts';
import type { Manifest } from '../../verify/publish/manifest.ts';
import { existingConnection } from '../connections/connections.ts';
import type { OperationsDeps } from '../deps.ts';
import { text } from '../fields.ts';
import { Refused } from '../refused.ts';
import { assuranceOf } from './assurance.ts';
import { drillSummaryOf } from './drills.ts';
import { summaryOf } from './verifications.ts';

export const reportQuery = z.strictObject({
  month: z.string().regex(/^\d{4}-(0[1-9]|1[0-2])$/, 'must be a month such as 2026-10'),
  connectionId: text.optional(),
});

export const reportAnswer = z
  .object({
    report: z.string().describe('The report as JSON: this text is signed.'),
    sha256: z.string().describe('SHA-256 of `report`.'),
    keyId: z.string().nullable().describe('The fingerprint of the key that signed it; null: it is not signed.'),
    signature: z.string().nullable().describe('Ed25519, base64.'),
  })
  .meta({ id: 'AssuranceReport' });

/** What the text of a report contains. */
export type MonthReport = Awaited<ReturnType<typeof reportOf>>;

type Deps = Pick<OperationsDeps, 'store' | 'storage' | 'scrub' | 'sync' | 'drillInterval' | 'signingKeys'>;

export const assuranceReportOperations = (deps: Deps) => ({
  /** The report of a month (UTC), signed like the manifests. */
  async assuranceReport(query: z.input<typeof reportQuery>) {
    const { month, connectionId } = reportQuery.parse(query);
    const report = `${JSON.stringify(await reportOf(deps, month, connectionId), null, 2)}\n`;
    const signingKey = deps.signingKeys?.[0];
    return {
      report,
      sha256: createHash('sha256').update(report).digest('hex'),
      keyId: signingKey?.keyId ?? null,
      signature: signingKey?.sign(report) ?? null,
    };
  },
});

async function reportOf(deps: Deps, month: string, connectionId: string | undefined) {
  const { store } = deps;
  const now = new Date(await store.now());
  const from = new Date(`${month}-01T00:00:00Z`);
  const end = new Date(Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + 1));
  if (from > now) throw new Refused(400, 'month_in_future', `The month ${month} has not begun (UTC).`);
  const begun = (await store.assurance.begunAt()) ?? now;
  if (end <= begun) {
    const first = dayOf(begun);
    throw new Refused(
      400,
      'month_before_mirror',
      `This mirror has nothing of ${month}: its first day is ${first} (UTC).`,
    );
  }
  const isMonthOver = end <= now;
  const to = isMonthOver ? end : now;
  const connection = connectionId === undefined ? undefined : await existingConnection(store, connectionId);
  const verifications = await store.verifications.endedIn({ from, to, connectionId });
  const manifests = await store.assurance.manifestsOf(dayOf(from), dayOf(new Date(end.getTime() - 1)));
  return {
    version: 1 as const,
    kind: 'asset-mirror assurance report' as const,
    /** `2026-10`, in UTC. If the month is not over, `to` is the time of the report. */
    month,
    isMonthOver,
    from: from.toISOString(),
    to: to.toISOString(),
    madeAt: now.toISOString(),
    madeBy: `asset-mirror ${version}`,
    mirrorId: (await store.bucket.known()) ?? null,
    connection: connection
      ? { id: connection.id, userName: connection.userName, userEmail: connection.userEmail, tags: connection.tags }
      : null,
    /**
     * Counts for the month. Assets that the database no longer has are missing, and so are files that were replaced before
     * `replacedSince`. `erased` counts the whole mirror, so it is null in the report of a connection.
     */
    inMonth: await store.assurance.happened({ from, to, changesMs: remembered.changes * dayMs, connectionId }),
    /** The statements of the last inventory of the month, about the whole mirror. */
    lastInventory: stated(manifests.at(-1)?.envelope),
    inventories: manifests.map(({ number, day, sha256, keyId }) => ({ number, day, sha256, keyId })),
    /** The database has all from this one on; null: it has none. If its number is not 1, earlier ones are only in the bucket. */
    firstKnownInventory: (await store.assurance.firstManifest()) ?? null,
    drills: (await store.drills.endedIn(from, to)).map(drillSummaryOf),
    /** Those of the month that the database still has; for one connection, with those of the whole mirror. */
    verifications: verifications.map(summaryOf),
    /** The state when the report was made. */
    now: await assuranceOf(deps, connectionId),
  };
}

function stated(envelope: string | undefined) {
  if (envelope === undefined) return null;
  const { day, assets, byState, skipped, objects, bytes, number } = JSON.parse(
    JSON.parse(envelope).manifest,
  ) as Manifest;
  return { number, day, assets, byState, skipped, objects, bytes };
}
