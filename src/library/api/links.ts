import { HttpError } from '../http-error.ts';
import { mac, safeEqual } from '../secrets.ts';
import type { Service } from '../service.ts';

export type Kind = 'original' | 'mp4' | 'thumbnail';

/** How long links work, in seconds. Section 2.6: about an hour for a thumbnail. */
const DOWNLOAD_LIFETIME = 900;
const THUMBNAIL_LIFETIME = 3600;

export function thumbnailLink(service: Service, assetId: string): string {
  return link(service, assetId, 'thumbnail', expiry(service, THUMBNAIL_LIFETIME));
}

/** Epoch seconds. */
export function downloadExpiry(service: Service): number {
  return expiry(service, DOWNLOAD_LIFETIME);
}

export function link(service: Service, assetId: string, kind: Kind, expires: number): string {
  const path = `/media/${encodeURIComponent(assetId)}/${kind}`;
  return `${service.addresses.api}${path}?expires=${expires}&signature=${signature(service, assetId, kind, expires)}`;
}

/** Section 4.7, rule 1, and section 8: a link works until it expires, with {app_url} as Referer. */
export function checkLink(
  service: Service,
  assetId: string,
  kind: Kind,
  query: { expires?: unknown; signature?: unknown },
  referer: string | undefined,
): void {
  const expires = Number(query.expires);
  if (!safeEqual(String(query.signature), signature(service, assetId, kind, expires))) {
    throw new HttpError(403, 'invalid_signature', 'The signature of this link is wrong.');
  }
  if (expires * 1000 <= service.clock.now()) throw expiredLink();
  if (referer?.replace(/\/$/, '') !== service.addresses.app) {
    throw new HttpError(403, 'referer_required', `This link needs the header Referer: ${service.addresses.app}`);
  }
}

export function expiredLink(): HttpError {
  return new HttpError(403, 'link_expired', 'This link has expired. Read the asset again for a new one.');
}

function expiry(service: Service, lifetime: number): number {
  return Math.floor(service.clock.now() / 1000) + lifetime;
}

function signature(service: Service, assetId: string, kind: Kind, expires: number): string {
  return mac(service.key, assetId, kind, String(expires));
}
