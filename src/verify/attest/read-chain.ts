import { fingerprintOf, isSignedBy } from '../../signing.ts';
import { manifestKey, manifests, publicKeys } from '../../storage/keys.ts';
import { type Envelope, hashOf } from '../chain.ts';
import type { Manifest } from '../manifest.ts';
import { type PublishedKey, vouching } from '../publish-key.ts';
import type { Attesting } from './finding.ts';
import { jsonAt, parsed } from './read.ts';

/** A manifest of the chain. */
export interface Statement {
  manifest: Manifest;
  sha256: string;
  envelope: Envelope;
}

export interface Chain {
  /** The proven ones in order, and how many there are in all. */
  statements: Statement[];
  count: number;
  /** The fingerprint on which all trust rests; null: there is none. */
  trusted: string | null;
  keys: PublishedKey[];
}

/**
 * Reads the chain, and reports manifests that are missing or not proven. A manifest is proven if a trusted key has signed it, or
 * if the next one is proven and has its hash. `trusted`: a fingerprint; default: that of the last manifest.
 */
export async function readChain(at: Attesting, fingerprint?: string): Promise<Chain> {
  const keys = await readKeys(at);
  const links = await readLinks(at);
  const trusted = fingerprint ?? links.at(-1)?.envelope.keyId ?? null;
  const trustedKeys = trustedBy(trusted, keys);
  let next: Statement | undefined;
  const proven = new Set<Link>();
  for (const link of links.toReversed()) {
    const isProven = next?.manifest.previous === link.sha256 || isSigned(link.envelope, trustedKeys);
    if (isProven) proven.add(link);
    next = isProven && link.manifest ? (link as Statement) : undefined;
  }
  reportGaps(at, links, proven);
  const statements = links.filter((link): link is Link & Statement => proven.has(link) && link.manifest !== undefined);
  return { statements, count: links.length, trusted, keys };
}

interface Link {
  key: string;
  envelope: Envelope;
  sha256: string;
  manifest: Manifest | undefined;
}

function reportGaps({ found }: Attesting, links: Link[], proven: Set<Link>): void {
  let after: string | null = null;
  let number = 1;
  for (const link of links) {
    for (; manifestKey(number) < link.key; number++) found({ what: 'missing', key: manifestKey(number), after });
    number++;
    if (!proven.has(link)) found({ what: 'altered', key: link.key, after, why: 'or not signed by a trusted key' });
    else after = link.manifest!.day;
  }
}

async function readLinks(at: Attesting): Promise<Link[]> {
  const links: Link[] = [];
  for await (const { key } of at.storage.list(manifests, { signal: at.signal })) {
    const { manifest = '', keyId = null, signature = null } = (await jsonAt<Envelope>(at, key)) ?? {};
    const envelope = { manifest: String(manifest), keyId, signature };
    const content = parsed<Manifest>(envelope.manifest) as Manifest | undefined;
    links.push({ key, envelope, sha256: hashOf(envelope.manifest), manifest: content });
  }
  return links;
}

/** Keys whose fingerprint is their name. */
async function readKeys(at: Attesting): Promise<PublishedKey[]> {
  const keys: PublishedKey[] = [];
  for await (const { key } of at.storage.list(publicKeys, { signal: at.signal })) {
    const published = (await jsonAt<PublishedKey>(at, key)) as PublishedKey | undefined;
    if (published && isItself(published)) keys.push(published);
  }
  return keys;
}

function isItself({ keyId, publicKey }: PublishedKey): boolean {
  try {
    return fingerprintOf(publicKey) === keyId;
  } catch {
    return false;
  }
}

/** The trusted key, and each key that a trusted one has signed; PEM by fingerprint. */
function trustedBy(fingerprint: string | null, keys: PublishedKey[]): Map<string, string> {
  const trusted = new Map<string, string>();
  for (let before = -1; before < trusted.size; ) {
    before = trusted.size;
    for (const { keyId, publicKey, signedBy } of keys) {
      const older = trusted.get(signedBy?.keyId ?? '');
      const isVouchedFor = older !== undefined && isSignedBy(older, vouching(keyId), signedBy!.signature);
      if (keyId === fingerprint || isVouchedFor) trusted.set(keyId, publicKey);
    }
  }
  return trusted;
}

function isSigned({ manifest, keyId, signature }: Envelope, trusted: Map<string, string>): boolean {
  const key = trusted.get(keyId ?? '');
  return key !== undefined && signature !== null && isSignedBy(key, manifest, signature);
}
