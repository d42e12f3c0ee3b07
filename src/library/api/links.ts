import { mac, same } from '../secrets.ts';
import { Refusal, type Service } from '../service.ts';

export type Kind = 'original' | 'mp4' | 'thumbnail';

/** Section 2.6: a thumbnail's link works for about an hour. */
const THUMBNAIL_LIFETIME = 3600;

export function thumbnailLink(service: Service, assetId: string): string {
  return link(service, assetId, 'thumbnail', expiry(service, THUMBNAIL_LIFETIME));
}

/** Epoch seconds. */
export function downloadExpiry(service: Service): number {
  return expiry(service, service.settings.linkLifetime);
}

export function link(service: Service, assetId: string, kind: Kind, expires: number): string {
  const path = `/media/${encodeURIComponent(assetId)}/${kind}`;
  return `${service.addresses.api}${path}?expires=${expires}&signature=${signature(service, assetId, kind, expires)}`;
}

export type LinkQuery = { expires?: unknown; signature?: unknown };

/** Section 4.7, rule 1, and section 8: a link works until it expires, for requests that come from {app_url}. */
export function checkLink(
  service: Service,
  assetId: string,
  kind: Kind,
  query: LinkQuery,
  referer: string | undefined,
): void {
  const expires = Number(query.expires);
  if (!same(String(query.signature), signature(service, assetId, kind, expires))) {
    throw new Refusal(403, 'invalid_signature', 'This link was not made by the library.');
  }
  if (expires * 1000 <= service.clock.now()) throw expiredLink();
  if (referer?.replace(/\/$/, '') !== service.addresses.app) {
    throw new Refusal(403, 'referer_required', `This link is only for requests with Referer: ${service.addresses.app}`);
  }
}

export function expiredLink(): Refusal {
  return new Refusal(403, 'link_expired', 'This link has expired. Read the asset again for a new one.');
}

function expiry(service: Service, lifetime: number): number {
  return Math.floor(service.clock.now() / 1000) + lifetime;
}

function signature(service: Service, assetId: string, kind: Kind, expires: number): string {
  return mac(service.key, assetId, kind, String(expires));
}
