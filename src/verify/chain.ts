import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import type { Log } from '../log.ts';
import type { Signer } from '../signing.ts';
import { manifestKey, manifests } from '../storage/keys.ts';
import type { Storage } from '../storage/storage.ts';
import type { Store } from '../store/store.ts';
import type { Link } from '../store/verifications/manifests.ts';
import type { Manifest } from './manifest.ts';
import { publishKey } from './publish-key.ts';

/** A manifest as it is in the chain. */
export interface Envelope {
  /** The text of `manifest.json`, which is what was signed. */
  manifest: string;
  keyId: string | null;
  /** Base64. */
  signature: string | null;
}

export interface ChainDeps {
  store: Pick<Store, 'manifests'>;
  storage: Storage;
  log: Log;
  /** Undefined: nothing is signed. */
  signer?: Signer | undefined;
}

export type Unchained = Omit<Manifest, 'number' | 'previous' | 'keyId'>;

/**
 * Adds a manifest to the chain, and returns its link and its text. The database decides which manifest comes next; what a
 * process that died did not write to the bucket is written by the next one.
 */
export async function addToChain(
  deps: ChainDeps,
  manifest: Unchained,
  signal: AbortSignal,
): Promise<{ link: Link; text: string }> {
  const { store, storage, signer } = deps;
  if (signer) await publishKey(deps, signer, signal);
  for (;;) {
    const last = await lastLink(deps, signal);
    if (last) await publish(storage, last, signal);
    const own = { number: (last?.number ?? 0) + 1, previous: last?.sha256 ?? null, keyId: signer?.[0].keyId ?? null };
    const content = `${JSON.stringify({ ...manifest, ...own } satisfies Manifest, null, 2)}\n`;
    const signature = signer?.[0].sign(content) ?? null;
    const link: Link = {
      ...{ number: own.number, day: manifest.day, sha256: hashOf(content), keyId: own.keyId },
      envelope: jsonOf({ manifest: content, keyId: own.keyId, signature }),
    };
    // Another process has added one meanwhile: this one comes after it.
    if (!(await store.manifests.append(link))) continue;
    await publish(storage, link, signal);
    return { link, text: content };
  }
}

export const hashOf = (content: string) => createHash('sha256').update(content).digest('hex');
const jsonOf = (envelope: Envelope) => `${JSON.stringify(envelope, null, 2)}\n`;

async function publish(storage: Storage, { number, envelope }: Link, signal: AbortSignal): Promise<void> {
  const key = manifestKey(number);
  if (await storage.head(key, { signal })) return;
  await storage.put(key, envelope, { contentType: 'application/json', signal });
}

/** The last manifest; after a rebuild, that of the bucket. */
async function lastLink({ store, storage }: ChainDeps, signal: AbortSignal): Promise<Link | undefined> {
  const known = await store.manifests.latest();
  if (known) return known;
  let last: string | undefined;
  for await (const { key } of storage.list(manifests, { signal })) last = key;
  const body = last === undefined ? undefined : await storage.get(last, { signal });
  if (!body) return undefined;
  const envelope = await text(body);
  const { manifest, keyId } = JSON.parse(envelope) as Envelope;
  const { number, day } = JSON.parse(manifest) as Manifest;
  return { number, day, sha256: hashOf(manifest), keyId, envelope };
}
