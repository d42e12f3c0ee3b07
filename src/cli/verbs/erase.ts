import { access, constants, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { exists } from '../../floor/files.ts';
import { formatBytes } from '../../floor/units.ts';
import type { Answer, Asked } from '../answers.ts';
import type { ApiClient } from '../client.ts';
import { confirmed, requireTerminal } from '../confirm.ts';
import { UsageError } from '../failures.ts';
import { findOptional } from '../find-connection.ts';
import { ago, counted, harmless, jsonOf, paint, print, printJson, table } from '../output.ts';

interface EraseOptions {
  project?: string;
  company?: string;
  connection?: string;
  reason: string;
  certificate?: string;
  yes?: boolean;
  json?: boolean;
}

const pollMs = 500;

/** Erases assets for good, after a confirmation, and writes the certificate. Returns how many assets and objects remain. */
export async function erase(api: ApiClient, ids: string[], options: EraseOptions): Promise<number> {
  const scope = await scopeOf(api, ids, options);
  if (options.certificate !== undefined) await requireFree(options.certificate);
  const preview = await api.previewErasure(scope);
  const what = `this erases ${counted(preview.assets, 'asset')} (${formatBytes(preview.bytes)} of media) for good`;
  if (!options.yes) {
    requireTerminal(what, options);
    print(`${paint('bold', counted(preview.assets, 'asset'))}, ${formatBytes(preview.bytes)} of media.`);
    print('Their media, transcripts, thumbnails, records, superseded files and history are');
    print('removed from the bucket and the database. They are never mirrored again. This');
    print('cannot be undone.');
    if (preview.held > 0)
      print(paint('yellow', `Protected by a hold, so not erased: ${counted(preview.held, 'asset')}.`));
    if (!(await confirmed('Erase them for good?'))) {
      print('Cancelled; nothing was changed.');
      return 0;
    }
  }
  const { id } = await api.erase({ ...scope, reason: options.reason });
  return finish(api, await follow(api, id, options), options);
}

async function follow(api: ApiClient, id: string, { json }: EraseOptions): Promise<Answer<'erasure'>> {
  if (!json) print(paint('dim', `Erasure ${id} continues if this command is interrupted.`));
  for (;;) {
    const erasure = await api.erasure(id);
    if (erasure.status === 'done') return erasure;
    await sleep(pollMs);
  }
}

/** Writes the certificate to a file, or prints it as JSON. */
async function finish(api: ApiClient, erasure: Answer<'erasure'>, options: Pick<EraseOptions, 'certificate' | 'json'>) {
  const certificate = await api.erasureCertificate(erasure.id);
  const { certificate: path } = options;
  if (path !== undefined) {
    await writeFile(path, `${jsonOf(certificate, 2)}\n`, { flag: 'wx' }).catch((error) => {
      const remedy = `Print the certificate with \`asset-mirror erasures ${erasure.id}\`.`;
      throw new Error(`the assets are erased, but ${path} cannot be written (${error.code}). ${remedy}`);
    });
  }
  if (options.json || path === undefined) printJson(certificate);
  if (!options.json && path !== undefined) print(`${summaryOf(certificate)}\nCertificate: ${harmless(path)}`);
  return erasure.assets.held + erasure.left;
}

/** Before anything is erased. @throws UsageError unless a new file can be written there */
async function requireFree(path: string): Promise<void> {
  if (await exists(path)) throw new UsageError(`--certificate ${path}: there is such a file already. Name a new one.`);
  await access(dirname(path), constants.W_OK).catch(() => {
    throw new UsageError(`--certificate ${path}: no file can be written there. Name another folder.`);
  });
}

/** Says how much was erased, and how much remains. */
export function summaryOf({ assets, objects, bytes, remaining }: Answer<'certificate'>): string {
  const locked = remaining.reduce((sum, object) => sum + object.bytes, 0);
  const amount = (count: number, size: number) => `${counted(count, 'object')} of ${formatBytes(size)}`;
  const lines = [`Erased ${counted(assets.erased, 'asset')}: ${amount(objects - remaining.length, bytes - locked)}.`];
  if (remaining.length > 0)
    lines.push(paint('yellow', `Locked, and removed when the lock ends: ${amount(remaining.length, locked)}.`));
  if (assets.held > 0) lines.push(paint('yellow', `Protected by a hold: ${counted(assets.held, 'asset')}.`));
  return lines.join('\n');
}

/** Lists erasures; with an id, prints the certificate of that one. Returns how many of its assets and objects remain. */
export async function erasures(
  api: ApiClient,
  id: string | undefined,
  options: { certificate?: string; json?: boolean },
): Promise<number> {
  if (id !== undefined) {
    const erasure = await api.erasure(id);
    if (erasure.status === 'done') return finish(api, erasure, options);
    throw new Error(
      `the erasure ${id} still runs. Its certificate is complete when \`asset-mirror erasures\` shows it as done.`,
    );
  }
  const found = await api.erasures();
  if (options.json) printJson(found);
  else if (found.erasures.length === 0) print('Nothing was erased.');
  else {
    const rows = found.erasures.map(({ id, status, requestedAt, requestedBy, assets, left, reason }) => [
      id,
      status,
      ago(requestedAt),
      requestedBy,
      String(assets.erased),
      String(left),
      reason,
    ]);
    const titles = ['ERASURE', 'STATUS', 'REQUESTED', 'BY', 'ASSETS', 'REMAINING'].map((title) => ({ title }));
    print(table([...titles, { title: 'REASON', least: 12 }], rows));
  }
  return 0;
}

/** @throws UsageError unless exactly one kind of thing is named */
async function scopeOf(
  api: ApiClient,
  ids: string[],
  { project, company, connection }: EraseOptions,
): Promise<Asked<'previewErasure'>> {
  const named = [ids.length > 0, project, company, connection].filter((it) => it !== undefined && it !== false);
  if (named.length !== 1) throw new UsageError('name either assets, or --project, or --company, or --connection');
  if (ids.length > 0) return { assetIds: ids };
  if (project !== undefined) return { projectId: project };
  if (company !== undefined) return { companyId: company };
  return { connectionId: await findOptional(api, connection) };
}
