import { fingerprintOf, isSignedBy } from '../../floor/signing.ts';
import { manifestKey, manifests, numberOf, publicKeyAt, publicKeys } from '../../storage/keys.ts';
import { parseObject } from '../json-object.ts';
import { type Envelope, sha256Of } from '../publish/chain.ts';
import type { Manifest } from '../publish/manifest.ts';
import { keyConfirmation, type PublishedKey } from '../publish/publish-signing-keys.ts';
import type { Context } from './finding.ts';
import { jsonAt } from './read.ts';

/** A proven manifest of the chain. */
export interface Statement {
  manifest: Manifest;
  sha256: string;
  envelope: Envelope;
  /** A trusted key signed the manifest; otherwise only the next manifest proves it. */
  isSigned: boolean;
}

export interface Chain {
  /** The proven manifests, in order. */
  statements: Statement[];
  /** How many manifests there are, proven or not. */
  count: number;
  /** The fingerprint of the trusted key; null: nothing is signed. */
  trusted: string | null;
  keys: PublishedKey[];
}

/**
 * Reads the chain, and reports manifests that are missing or not proven. A manifest is proven by the next one, which has its
 * hash; if that is missing or not proven itself, by its own signature. `fingerprint`: of the trusted key; default: the key of
 * the last signed manifest.
 */
export async function readChain(context: Context, fingerprint?: string): Promise<Chain> {
  const keys = await readKeys(context);
  const links = await readLinks(context);
  const trusted = fingerprint ?? links.findLast(({ envelope }) => envelope.keyId !== null)?.envelope.keyId ?? null;
  const trustedKeys = trustedBy(trusted, keys);
  if (trusted && !trustedKeys.has(trusted)) context.found({ what: 'missing', key: publicKeyAt(trusted), after: null });
  const proven = new Map<number, Statement>();
  for (const { number, manifest, ...link } of links.toReversed()) {
    const next = proven.get(number + 1);
    const isSigned = isSignedByOne(link.envelope, trustedKeys);
    const isProven = next ? next.manifest.previous === link.sha256 : isSigned;
    if (isProven && manifest?.number === number) proven.set(number, { manifest, isSigned, ...link });
  }
  reportGaps(context, links, proven);
  const statements = [...proven.values()].reverse();
  return { statements, count: links.length, trusted, keys };
}

interface Link {
  /** From the key of the object. */
  number: number;
  envelope: Envelope;
  sha256: string;
  /** Undefined: the envelope has no manifest. */
  manifest: Manifest | undefined;
}

function reportGaps({ found }: Context, links: Link[], proven: Map<number, Statement>): void {
  let after: string | null = null;
  let expected = 1;
  for (const { number } of links) {
    const gap = number - expected;
    const key = `${manifestKey(expected)}${gap > 1 ? ` to ${manifestKey(number - 1)}` : ''}`;
    if (gap > 0) found({ what: 'missing', key, after });
    expected = number + 1;
    const statement = proven.get(number);
    after = statement?.manifest.day ?? after;
    if (!statement) found({ what: 'altered', key: manifestKey(number), after, why: 'or not signed by a trusted key' });
  }
}

async function readLinks(context: Context): Promise<Link[]> {
  const links: Link[] = [];
  for await (const { key } of context.storage.list(manifests, { signal: context.signal })) {
    const number = numberOf(key);
    if (number === undefined) continue;
    const { manifest = '', keyId = null, signature = null } = (await jsonAt<Envelope>(context, key)) ?? {};
    const envelope = { manifest: String(manifest), keyId, signature };
    const content = parseObject<Manifest>(envelope.manifest) as Manifest | undefined;
    links.push({ number, envelope, sha256: sha256Of(envelope.manifest), manifest: content });
  }
  return links;
}

/** The published keys whose `keyId` is their fingerprint. */
async function readKeys(context: Context): Promise<PublishedKey[]> {
  const keys: PublishedKey[] = [];
  for await (const { key } of context.storage.list(publicKeys, { signal: context.signal })) {
    const published = (await jsonAt<PublishedKey>(context, key)) as PublishedKey | undefined;
    if (published && hasOwnFingerprint(published)) keys.push(published);
  }
  return keys;
}

function hasOwnFingerprint({ keyId, publicKey }: PublishedKey): boolean {
  try {
    return fingerprintOf(publicKey) === keyId;
  } catch {
    return false;
  }
}

/** The trusted key, and each key that a trusted one has signed; PEM by fingerprint. */
function trustedBy(fingerprint: string | null, keys: PublishedKey[]): Map<string, string> {
  const trusted = new Map<string, string>();
  // Repeats until no key is added: a key that was confirmed can confirm others.
  for (let before = -1; before < trusted.size; ) {
    before = trusted.size;
    for (const { keyId, publicKey, signedBy } of keys) {
      const older = trusted.get(signedBy?.keyId ?? '');
      const isConfirmed = older !== undefined && isSignedBy(older, keyConfirmation(keyId), signedBy!.signature);
      if (keyId === fingerprint || isConfirmed) trusted.set(keyId, publicKey);
    }
  }
  return trusted;
}

function isSignedByOne({ manifest, keyId, signature }: Envelope, trusted: Map<string, string>): boolean {
  const key = trusted.get(keyId ?? '');
  return key !== undefined && signature !== null && isSignedBy(key, manifest, signature);
}
