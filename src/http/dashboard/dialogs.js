/** @import { Connection, Plan, PlanProgress } from './types.d.ts' */
import { resync } from './actions.js';
import { api, linesOf, queryOf } from './api.js';
import { dialog, openDialog, textOf, whileOpen } from './dialog.js';
import { bytes, counted, duration, number, when } from './format.js';
import { nameOf } from './names.js';
import { companiesOf } from './parts.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';

/** @param {Connection} connection @param {{ projects: string[], types: string[] }} known @param {() => unknown} then */
export function resyncDialog(connection, known, then) {
  let what = 'new';
  const choose = (/** @type {Event} */ event) => {
    what = /** @type {HTMLInputElement} */ (event.target).value;
    show();
  };
  const choice = (/** @type {string} */ value, /** @type {string} */ name, /** @type {string} */ hint) => html`
    <label class="choice"><input type="radio" name="what" value=${value} .checked=${what === value} @change=${choose}>
      <span>${name}<small>${hint}</small></span></label>`;
  const show = openDialog({
    title: `Sync ${nameOf(connection)}`,
    label: 'Sync now',
    then,
    content: () => html`
      <fieldset><legend>What to look at</legend>
        ${choice('new', 'What is new', 'From where the last sync ended. A matter of seconds.')}
        ${choice('everything', 'Everything', 'Lists the whole library, and has made again what the bucket lacks.')}
        ${choice('part', 'A part of it', 'One project, one type, or the assets that you name.')}
      </fieldset>
      ${
        what === 'part'
          ? html`<fieldset class="fields"><legend>Which part</legend>
            ${
              connection.companies.length > 1
                ? html`<label>Company<select name="companyId"><option value="">All of them</option>${connection.companies.map(
                    ({ id, name }) => html`<option value=${id}>${name}</option>`,
                  )}</select></label>`
                : nothing
            }
            <label>Project id<input name="projectId" list="projects" autocomplete="off"></label>
            <datalist id="projects">${known.projects.map((id) => html`<option value=${id}></option>`)}</datalist>
            <label>Type<input name="assetType" list="types" autocomplete="off"></label>
            <datalist id="types">${known.types.map((type) => html`<option value=${type}></option>`)}</datalist>
            <label>Asset ids, one a line<textarea name="assetIds" rows="2"></textarea></label>
          </fieldset>`
          : nothing
      }`,
    async send(form) {
      if (what !== 'part') return resync(connection.id, { mode: what === 'new' ? 'incremental' : 'full' });
      const ids = textOf(form, 'assetIds')
        ?.split(/[\s,]+/)
        .filter(Boolean);
      const part = {
        companyId: textOf(form, 'companyId'),
        projectId: textOf(form, 'projectId'),
        assetType: textOf(form, 'assetType'),
        assetIds: ids?.length ? ids : undefined,
      };
      if (Object.values(part).every((it) => it === undefined))
        throw new Error('Say which part: a project, a type, or ids.');
      return resync(connection.id, { mode: 'full', ...part });
    },
  });
}

/** @param {Connection} connection @param {() => unknown} then */
export function disconnectDialog(connection, then) {
  openDialog({
    title: `Disconnect ${nameOf(connection)}?`,
    label: 'Disconnect',
    danger: true,
    then,
    content: () => html`
      <p>The grant ends, here and at the service, and nothing more of ${companiesOf(connection)} is mirrored by it.</p>
      <p>What is in the bucket stays. To go on, its user has to connect again.</p>`,
    async send() {
      const { revoked } = await api(`/connections/${connection.id}/disconnect`, { method: 'POST' });
      return revoked === false
        ? 'Disconnected here. The service could not be told: the user can end it in the profile there.'
        : 'Disconnected.';
    },
  });
}

/** @param {Connection | undefined} connection undefined: a new one */
export async function linkDialog(connection) {
  const { url, expiresAt } = await api('/connect-links', {
    method: 'POST',
    body: connection ? { connectionId: connection.id } : {},
  });
  let copied = false;
  const copy = async () => {
    /** @type {HTMLInputElement | null} */ (dialog.querySelector('#link'))?.select();
    await navigator.clipboard?.writeText(url).catch(() => {});
    copied = true;
    show();
  };
  const show = openDialog({
    title: connection ? `Reconnect ${nameOf(connection)}` : 'Connect an account',
    content: () => html`
      <p>Send this link to the person ${connection ? 'whose account it is' : 'whose library is to be mirrored'}. It works until ${when(expiresAt)}.</p>
      <label class="field">Link<input id="link" readonly .value=${url} @focus=${(/** @type {FocusEvent} */ event) => /** @type {HTMLInputElement} */ (event.target).select()}></label>
      <p class="row"><button type="button" class="main" @click=${copy}>${copied ? 'Copied' : 'Copy'}</button>
        <a class="button" href=${url} target="_blank" rel="noopener">Open it here</a></p>`,
  });
}

/** @param {Connection} connection */
export async function planDialog(connection) {
  /** @type {PlanProgress | null | undefined} */
  let progress;
  /** @type {Plan | undefined} */
  let plan;
  /** @type {string | undefined} */
  let error;
  const show = openDialog({
    title: `What a full sync of ${nameOf(connection)} would move`,
    content: () => html`
      ${error || plan ? nothing : html`<p>Listing the library … <span class="soft">${progress ? `${counted(progress.listed, 'asset')} so far` : ''}</span></p>`}
      <div aria-live="polite">${error ? html`<p class="banner bad">${error}</p>` : plan ? planOf(plan) : nothing}</div>`,
  });
  const signal = whileOpen();
  try {
    const lines =
      /** @type {AsyncGenerator<{ progress?: PlanProgress | null, result?: Plan, error?: { detail: string } }>} */ (
        linesOf(`/plan${queryOf({ connectionId: connection.id })}`, { signal })
      );
    for await (const line of lines) {
      progress = line.progress ?? progress;
      plan = line.result;
      error = line.error?.detail;
      show();
    }
  } catch (problem) {
    if (signal.aborted) return;
    error = /** @type {Error} */ (problem).message;
    show();
  }
}

/** @type {Record<string, string>} */
const planNames = {
  new: 'New',
  missing: 'Missing in the bucket',
  changed: 'Changed',
  waiting: 'Waiting already',
  record: 'Only the record, or a transcript',
  same: 'There already',
  processing: 'Still transcoding',
  unavailable: 'Unavailable',
  leftOut: 'Left out by the settings',
  unreadable: 'Cannot be read',
};

/** @param {Plan} plan */
const planOf = ({ toMove, byKind, time, listed, problems }) => html`
  <p class="big">${counted(toMove.assets, 'asset')}<small>${bytes(toMove.bytes)}${time.seconds === null ? '' : `, ${time.seconds < 1 ? '' : 'about '}${duration(time.seconds)}`} · ${number(listed)} listed</small></p>
  <dl class="facts">${Object.entries(byKind)
    .filter(([, { assets }]) => assets > 0)
    .map(
      ([kind, { assets, bytes: size }]) =>
        html`<div><dt>${planNames[kind] ?? kind}</dt><dd>${number(assets)} · ${bytes(size)}</dd></div>`,
    )}</dl>
  ${problems.map((problem) => html`<p class="banner warn">${problem}</p>`)}`;
