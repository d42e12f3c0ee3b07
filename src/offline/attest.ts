import { stat } from 'node:fs/promises';
import type { CopyConfig } from '../config/config.ts';
import type { StorageTarget } from '../config/parsers.ts';
import { StorageUnavailable } from '../floor/errors.ts';
import type { Log } from '../floor/log.ts';
import { openDirectory } from '../storage/directory/directory.ts';
import { openStorage } from '../storage/open.ts';
import { type Attested, attest } from '../verify/attest/attest.ts';
import type { Finding } from '../verify/attest/finding.ts';
import { type Proof, prove } from '../verify/attest/prove.ts';

export interface AttestRequest {
  /** Default: the bucket of the settings. */
  at?: StorageTarget | undefined;
  /** The fingerprint to trust. */
  key?: string | undefined;
}

interface Opening {
  log: Log;
  stop: AbortSignal;
}

/** Called while a copy is checked. */
export interface AttestReport {
  start: (storage: string) => void;
  found: (finding: Finding) => void;
  progress: (soFar: Readonly<Attested>) => void;
}

/** Checks a copy against its signed manifests, in a process of its own. Needs no database, and writes nothing. */
export async function attestCopy(
  config: CopyConfig,
  { at, key }: AttestRequest,
  { report, ...opening }: Opening & { report: AttestReport },
): Promise<Attested> {
  await using open = new AsyncDisposableStack();
  const copy = await openCopy(config, at, { ...opening, open });
  report.start(copy.storage.name);
  return await attest({ ...copy, found: report.found }, { key, onProgress: report.progress });
}

/** The proof of one asset, see prove.ts. @throws NotProven */
export async function proveAsset(
  config: CopyConfig,
  { at, ...request }: AttestRequest & { assetId: string; day?: string | undefined },
  opening: Opening,
): Promise<Proof> {
  await using open = new AsyncDisposableStack();
  const copy = await openCopy(config, at, { ...opening, open });
  return await prove({ ...copy, found: () => {} }, request);
}

async function openCopy(
  config: CopyConfig,
  at: StorageTarget | undefined,
  { log, stop, open }: Opening & { open: AsyncDisposableStack },
) {
  const target = at ?? config.storage.target;
  if (target.kind === 'directory' && !(await stat(target.path).catch(() => undefined))?.isDirectory()) {
    throw new StorageUnavailable(`${target.path} is not a directory`);
  }
  const storage =
    target.kind === 'directory'
      ? await openDirectory({ ...target, log, readOnly: true })
      : await openStorage({ target, s3: config.storage.s3 }, { log });
  open.defer(() => storage.close());
  return { storage, hasVersions: target.kind === 's3', signal: stop };
}
