/** @import { Asset, AssetSummary } from './types.d.ts' */
import { addressOf, queryOf } from './api.js';
import { may } from './permissions.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { typeName } from './words.js';

/**
 * The address of a file of an asset. `version`: another value when the file has changed, so that browsers do not show the old one.
 * @param {string} id @param {'media' | 'thumbnail' | 'captions' | 'record'} kind
 * @param {{ version?: string | null, download?: boolean }} [options]
 */
const fileOf = (id, kind, { version, download } = {}) =>
  `${addressOf(`/assets/${encodeURIComponent(id)}/${kind}`)}${queryOf({ download: download ? 'true' : undefined, version })}`;

/** The thumbnail of an asset, or the name of its type. @param {AssetSummary} asset */
export const thumbnailOf = ({ id, type, thumbnail, mirroredAt }) =>
  thumbnail === 'mirrored' && may('getThumbnail')
    ? html`<img src=${fileOf(id, 'thumbnail', { version: mirroredAt })} alt="" loading="lazy" decoding="async">`
    : html`<span class="no-picture">${type === null ? 'No type' : typeName(type)}</span>`;

/** Larger pictures are shown by their thumbnails. */
const mostPictureBytes = 30 * 2 ** 20;
const pictures = ['image/avif', 'image/gif', 'image/jpeg', 'image/png', 'image/webp'];

/** A link to the store expires after minutes: requests a new one and continues to play. @param {Event} event */
function continuePlaying({ currentTarget }) {
  const player = /** @type {HTMLMediaElement} */ (currentTarget);
  const { currentTime, paused } = player;
  // A second failure at the same time is not an expired link.
  if (player.dataset.failedAt === String(currentTime)) return;
  player.dataset.failedAt = String(currentTime);
  player.load();
  player.currentTime = currentTime;
  if (!paused) player.play().catch(() => {});
}

/** Plays from a time on, once. A browser that refuses to play by itself waits there. @param {number | undefined} at in seconds */
const playFrom =
  (at) =>
  (/** @type {Event} */ { currentTarget }) => {
    const player = /** @type {HTMLMediaElement} */ (currentTarget);
    if (at === undefined || player.dataset.playedFrom === String(at)) return;
    player.dataset.playedFrom = String(at);
    player.currentTime = at;
    player.play().catch(() => {});
  };

/** Shows a picture or a player of the asset. @param {Asset} asset @param {number} [at] where it starts to play, in seconds */
export function previewOf(asset, at) {
  const { id, key, mimeType, variant, bytes, transcript, thumbnail, mirroredAt: version, name } = asset;
  if (key === null || version === null || !may('getMedia')) return nothing;
  const type = variant === 'mp4' ? 'video/mp4' : (mimeType ?? '').toLowerCase();
  const media = fileOf(id, 'media', { version });
  const hasPicture = thumbnail === 'mirrored';
  const captions =
    transcript === 'mirrored'
      ? html`<track kind="captions" label="Transcript" src=${fileOf(id, 'captions', { version })} default>`
      : nothing;
  if (type.startsWith('video/')) {
    const poster = hasPicture ? fileOf(id, 'thumbnail', { version }) : '';
    return html`<div class="preview"><video controls preload="metadata" src=${media} poster=${poster} aria-label=${name ?? id} @error=${continuePlaying} @loadedmetadata=${playFrom(at)}>${captions}</video></div>`;
  }
  if (type.startsWith('audio/')) {
    return html`<div class="preview">${hasPicture ? html`<img src=${fileOf(id, 'thumbnail', { version })} alt="">` : nothing}
      <audio controls preload="metadata" src=${media} aria-label=${name ?? id} @error=${continuePlaying} @loadedmetadata=${playFrom(at)}>${captions}</audio></div>`;
  }
  if (pictures.includes(type) && (bytes ?? 0) <= mostPictureBytes) {
    return html`<div class="preview"><img src=${media} alt=${name ?? id}></div>`;
  }
  return hasPicture
    ? html`<div class="preview"><img src=${fileOf(id, 'thumbnail', { version })} alt="Thumbnail of ${name ?? id}"></div>`
    : nothing;
}

/** Links to the file. @param {Asset} asset */
export function fileLinks({ id, key, mirroredAt, mimeType }) {
  if (key === null || mirroredAt === null || !may('getMedia')) return nothing;
  const isDocument = ['application/pdf', 'text/plain'].includes((mimeType ?? '').toLowerCase());
  return html`<a class="button" href=${fileOf(id, 'media', { download: true })} download>Download</a>
    ${isDocument ? html`<a class="button" href=${fileOf(id, 'media')} target="_blank" rel="noopener">Open</a>` : nothing}`;
}
