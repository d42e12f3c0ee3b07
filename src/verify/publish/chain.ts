import { createHash } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { NamedError } from '../../floor/errors.ts';
import type { Log } from '../../floor/log.ts';
import { isSignedBy, type SigningKeys } from '../../floor/signing.ts';
import { manifestKey, manifests, numberOf, ours } from '../../storage/keys.ts';
import type { Storage } from '../../storage/storage.ts';
import type { Store } from '../../store/store.ts';
import type { Link } from '../../store/verifications/manifests.ts';
import { parseObject } from '../json-object.ts';
import type { Manifest } from './manifest.ts';
import { publishKeys } from './publish-signing-keys.ts';

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
  signingKeys?: SigningKeys | undefined;
}

/** A manifest before it is added to the chain. */
export type Unchained = Omit<Manifest, 'number' | 'previous' | 'keyId'>;

/**
 * Adds a manifest to the chain, and returns it with its link and its text. The database decides which manifest comes next. If a process
 * dies before it writes a manifest to the bucket, the next call does. @throws ForeignManifest
 */
export async function addToChain(
  deps: ChainDeps,
  manifest: Unchained,
  signal: AbortSignal,
): Promise<{ link: Link; chained: Manifest; text: string }> {
  const { store, signingKeys } = deps;
  if (signingKeys) await publishKeys(deps, signingKeys, signal);
  const key = signingKeys?.[0];
  for (;;) {
    const last = await lastLink(deps, signal);
    const number = (last?.number ?? 0) + 1;
    const keyId = key?.keyId ?? null;
    const chained: Manifest = { ...manifest, number, previous: last?.sha256 ?? null, keyId };
    const content = `${JSON.stringify(chained, null, 2)}\n`;
    const signed: Envelope = { manifest: content, keyId, signature: key?.sign(content) ?? null };
    const envelope = `${JSON.stringify(signed, null, 2)}\n`;
    const link: Link = { number, day: manifest.day, sha256: sha256Of(content), keyId, envelope };
    // Another process has added a manifest meanwhile: this one comes after it.
    if (!(await store.manifests.append(link))) continue;
    await publish(deps, link, signal);
    return { link, chained, text: content };
  }
}

export const sha256Of = (content: string) => createHash('sha256').update(content).digest('hex');

/** Writes a manifest of the database to the bucket, unless it is there. */
async function publish(
  { storage, log }: Pick<ChainDeps, 'storage' | 'log'>,
  { number, envelope }: Link,
  signal: AbortSignal,
): Promise<void> {
  const key = manifestKey(number);
  const body = await storage.get(key, { signal });
  const found = body && (await text(body));
  if (found === envelope) return;
  if (found !== undefined) {
    log.error({ event: 'manifest.altered', key }, 'manifest in the bucket was altered, replaced by the original');
  }
  await storage.put(key, envelope, { contentType: 'application/json', signal });
}

/**
 * The last manifest of the chain. After a restored backup of the database, only the bucket has the later manifests; after a
 * rebuild, only the bucket has any. @throws ForeignManifest
 */
export async function lastLink(deps: ChainDeps, signal: AbortSignal): Promise<Link | undefined> {
  const { store, storage } = deps;
  let last: Link | undefined = await store.manifests.latest();
  if (!last) {
    let number = 0;
    for await (const { key } of storage.list(manifests, { signal })) number = numberOf(key) ?? number;
    return number === 0 ? undefined : await readLink(deps, number, undefined, signal);
  }
  await publish(deps, last, signal);
  for (;;) {
    const next = await readLink(deps, last.number + 1, last, signal);
    if (!next) return last;
    last = next;
  }
}

/** The manifest with this number in the bucket. Our next manifest will confirm it, so one of our keys must have signed it. */
async function readLink(
  { storage, signingKeys }: ChainDeps,
  number: number,
  previous: Link | undefined,
  signal: AbortSignal,
): Promise<Link | undefined> {
  const key = manifestKey(number);
  const body = await storage.get(key, { signal });
  if (!body) return undefined;
  const envelope = await text(body);
  const { manifest = '', keyId = null, signature } = parseObject<Envelope>(envelope) ?? {};
  const content = parseObject<Manifest>(manifest) ?? {};
  const isNext = content.number === number && (!previous || content.previous === previous.sha256);
  const signedBy = signingKeys?.find((each) => each.keyId === keyId)?.publicKey;
  const isOwn = signingKeys ? signedBy && isSignedBy(signedBy, manifest, signature ?? '') : true;
  if (!isNext || !isOwn) throw new ForeignManifest(key);
  return { number, day: content.day!, sha256: sha256Of(manifest), keyId, envelope };
}

/** The next manifest would confirm one that this mirror has not signed. */
class ForeignManifest extends NamedError {
  constructor(key: string) {
    super(
      `${key} is not signed by a key of SIGNING_KEY, or does not continue the chain: add the key that signed it, or move ${ours}manifests and ${ours}inventory away to begin a new chain`,
    );
  }
}
