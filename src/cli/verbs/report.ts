import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { MonthReport } from '../../operations/assurance/assurance-report.ts';
import type { ApiClient } from '../client.ts';
import { findOptional } from '../find-connection.ts';
import { print, printError, printJson } from '../output.ts';
import { reportPage } from './report-page.ts';

interface ReportOptions {
  month: string;
  connection?: string;
  out: string;
  json?: boolean;
}

/** Writes the report of a month as signed JSON and as a page. */
export async function report(api: ApiClient, { month, connection, out, json }: ReportOptions): Promise<void> {
  const connectionId = await findOptional(api, connection);
  const signed = await api.assuranceReport({ month, connectionId });
  const content = JSON.parse(signed.report) as MonthReport;
  const name = `asset-mirror-${month}${connectionId === undefined ? '' : `-${connectionId}`}`;
  const files = { json: join(out, `${name}.json`), page: join(out, `${name}.html`) };
  await mkdir(out, { recursive: true });
  await writeFile(files.json, `${JSON.stringify(signed, null, 2)}\n`);
  await writeFile(files.page, reportPage(content, signed));
  if (json) return printJson({ ...files, sha256: signed.sha256, keyId: signed.keyId });
  print(`${files.json}\n${files.page}`);
  if (signed.keyId) print(`Signed by the key ${signed.keyId}`);
  else printError('It is not signed: the service has no SIGNING_KEY.');
}
