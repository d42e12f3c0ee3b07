/** @import { Asset, AssetVersion } from '../types.d.ts' */
import { act, retryAsset } from '../actions.js';
import { api } from '../api.js';
import { bytes, when } from '../format.js';
import { loaderOf } from '../loader.js';
import { connectionName } from '../names.js';
import { canRetry, empty, head, notYet, sizeOf, statePill, time, trouble, withCode, withLocalTimes } from '../parts.js';
import { ifMay, may, rolesNeeded } from '../permissions.js';
import { fileLinks, previewOf } from '../preview.js';
import { eraseDialog, protectButton } from '../removals.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { sentence, typeName } from '../words.js';

const loader = loaderOf(async (id) => {
  const path = `/assets/${encodeURIComponent(id)}`;
  const [asset, { versions }] = await Promise.all([api(path), api(`${path}/versions`)]);
  return { asset: /** @type {Asset} */ (asset), versions: /** @type {AssetVersion[]} */ (versions) };
});
/** Where the player starts, in seconds. @type {number | undefined} */
let startAt;

/** @type {Record<string, string>} */
const checksumNames = { crc32: 'CRC-32', md5: 'MD5', sha256: 'SHA-256' };

/** @type {Record<string, string>} */
const sidecars = {
  none: 'None',
  pending: 'Not available yet',
  mirrored: 'Mirrored',
  no_speech: 'No speech',
  gave_up: 'Given up',
};

export const assetView = {
  title: 'Asset',
  /** @param {string[]} path @param {URLSearchParams} given */
  async open([wantedId = ''], given) {
    const at = Number(given.get('at') ?? Number.NaN);
    startAt = at >= 0 && Number.isFinite(at) ? at : undefined;
    await loader.open(decodeURIComponent(wantedId));
  },
  refresh: loader.refresh,
  render() {
    const { found, error, refresh } = loader;
    if (!found) return notYet(error);
    const { asset, versions } = found;
    const { checksums, sidecarFiles, upload } = asset;
    return html`
      <nav aria-label="You are here" class="crumbs"><a href="#/">Overview</a> <a href="#/assets">Assets</a>${
        asset.connectionId
          ? html` <a href="#/connections/${asset.connectionId}">${connectionName(asset.connectionId)}</a>`
          : nothing
      }</nav>
      ${trouble(error)}
      <section class="card" aria-labelledby="asset-title">
        <div class="head"><div><h1 id="asset-title" tabindex="-1">${asset.name ?? asset.id}</h1>
          <p class="soft">${[asset.type && typeName(asset.type), asset.mimeType, asset.projectId && (asset.projectName ?? `project ${asset.projectId}`)].filter(Boolean).join(' · ')}</p></div>
          <p class="state">${statePill(asset)}</p></div>
        ${previewOf(asset, startAt)}
        ${explanationOf(asset)}
        <div class="actions">${fileLinks(asset)} ${canRetry(asset) && may('retryAsset') ? html`<button class="main" @click=${() => act(() => retryAsset(asset), refresh)}>Retry</button>` : nothing}
          ${protectButton(asset, refresh)} ${ifMay('erase', () => html`<button @click=${() => eraseDialog(asset, refresh)}>Erase …</button>`)}</div>
        ${rolesNeeded({ Files: 'getMedia', ...(canRetry(asset) ? { Retry: 'retryAsset' } : {}), ...(asset.held ? { 'End protection': 'release' } : { Protect: 'hold' }), Erase: 'erase' })}
        <dl class="facts">
          <div><dt>Size</dt><dd>${sizeOf(asset)}${asset.variant === 'mp4' ? html` <small>mp4 rendition</small>` : nothing}</dd></div>
          <div><dt>Uploaded to the library</dt><dd>${when(asset.uploadDate)}</dd></div>
          <div><dt>First seen</dt><dd>${time(asset.firstSeenAt)}</dd></div>
          <div><dt>Mirrored</dt><dd>${time(asset.mirroredAt, 'not yet')}</dd></div>
          ${asset.mirroredAt ? html`<div><dt>Verified</dt><dd>${time(asset.verifiedAt, 'not since it was mirrored')}</dd></div>` : nothing}
          ${asset.held ? html`<div><dt>Protected</dt><dd>from removal</dd></div>` : nothing}
          <div><dt>Attempts</dt><dd>${asset.attempts}</dd></div>
          <div><dt>Transcript</dt><dd>${sidecars[asset.transcript]}</dd></div>
          <div><dt>Thumbnail</dt><dd>${sidecars[asset.thumbnail]}</dd></div>
          ${asset.nextAt ? html`<div><dt>Next check</dt><dd>${time(asset.nextAt)}</dd></div>` : nothing}
          ${upload ? html`<div><dt>Upload to the bucket</dt><dd>${bytes(upload.stored.bytes)} of ${bytes(upload.bytes)} <small>${upload.stored.parts} parts</small></dd></div>` : nothing}
          <div class="wide"><dt>Id</dt><dd><code>${asset.id}</code></dd></div>
          ${asset.key ? html`<div class="wide"><dt>In the bucket</dt><dd><code>${asset.key}</code></dd></div>` : nothing}
          ${Object.entries(checksums ?? {}).map(([name, value]) => html`<div class="wide"><dt>${checksumNames[name] ?? name}</dt><dd><code>${value}</code></dd></div>`)}
          ${sidecarFiles.map((one) => html`<div class="wide"><dt>Sidecar, ${bytes(one.bytes)}</dt><dd><code>${one.key}</code></dd></div>`)}
        </dl>
      </section>
      ${
        versions.length > 0
          ? html`<section class="card" aria-labelledby="versions-title"><h2 id="versions-title">Superseded files</h2>
        <p class="soft">The library has replaced them. Get one back: <code>asset-mirror restore ${asset.id} --version VERSION --to DIRECTORY</code></p>${versionTable(versions)}</section>`
          : nothing
      }
      <section class="card" aria-labelledby="timeline-title"><h2 id="timeline-title">History</h2>${timelineOf(asset)}</section>`;
  },
};

/** @param {Asset} of */
const explanationOf = ({ explanation }) =>
  explanation.length > 0
    ? html`<div class="explain">${explanation.map((line) => html`<p>${withCode(line)}</p>`)}</div>`
    : nothing;

/** @param {AssetVersion[]} versions */
const versionTable = (versions) => html`<table role="table" class="cards small-figures">
  ${head('Superseded', 'Mirrored', 'Size', 'CRC-32', 'Why', 'Kept until')}
  <tbody role="rowgroup">${versions.map(
    ({ version, replacedAt, mirroredAt, expiresAt, media, reason }) => html`<tr role="row">
      <th role="rowheader" scope="row">${time(replacedAt)} <small><code>${version}</code></small></th>
      <td role="cell" data-label="Mirrored">${time(mirroredAt)}</td>
      <td role="cell" data-label="Size">${bytes(media.bytes)}</td>
      <td role="cell" data-label="CRC-32"><code>${media.checksums.crc32 ?? ''}</code></td>
      <td role="cell" data-label="Why">${sentence(reason.text)}</td>
      <td role="cell" data-label="Kept until">${time(expiresAt, 'forever')}</td></tr>`,
  )}</tbody></table>`;

/** @param {Asset} of */
const timelineOf = ({ timeline }) =>
  timeline.length > 0
    ? html`<ul class="events">${[...timeline].reverse().map(({ at, what, text }) => html`<li class=${toneOf(what)}><span>${withLocalTimes(sentence(text))}</span>${time(at)}</li>`)}</ul>`
    : empty('The history of this asset is no longer kept.');

/** @param {string} what */
const toneOf = (what) => (/fail|gave_up/.test(what) ? 'bad' : /mirrored|stored|verified/.test(what) ? 'good' : 'plain');
