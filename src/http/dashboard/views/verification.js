/** @import { Verification, VerificationSummary } from '../types.d.ts' */
import { act } from '../actions.js';
import { api, queryOf } from '../api.js';
import { bytes, counted, duration, number } from '../format.js';
import { later } from '../lists.js';
import { loaderOf } from '../loader.js';
import { connectionName } from '../names.js';
import { empty, moreButton, notYet, pill, time, trouble } from '../parts.js';
import { may } from '../permissions.js';
import { say } from '../state.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { verify } from '../verify-dialog.js';

const page = 100;
/** The maximum lines of an answer of the API. */
const mostLines = 1000;
/** Between two requests while it runs. */
const pollMs = 1000;

let wantedLines = page;

const loader = loaderOf(
  async (id) => {
    /** @type {Verification['lines']} */
    const lines = [];
    /** @type {number | null | undefined} */
    let after;
    for (;;) {
      const limit = Math.min(mostLines, wantedLines - lines.length);
      /** @type {Verification} */
      const run = await api(`/verify/${encodeURIComponent(id)}${queryOf({ after, limit })}`);
      lines.push(...run.lines);
      after = run.next;
      if (after === null || lines.length >= wantedLines) return { ...run, lines };
    }
  },
  (run, before) => {
    if (!ended(run)) refreshSoon();
    else if (before && !ended(before)) say(`Verification ended: ${outcomeOf(run).word}.`);
  },
);
const refreshSoon = later(() => {
  if (location.hash === `#/verify/${loader.id}`) loader.refresh();
}, pollMs);

const ended = (/** @type {Verification} */ { status }) => status === 'done' || status === 'failed';

/** @param {VerificationSummary} of @returns {{ tone: string, word: string }} */
export function outcomeOf({ status, differences }) {
  if (status === 'waiting') return { tone: 'plain', word: 'Waiting' };
  if (status === 'running') return { tone: 'go', word: 'Running' };
  if (status === 'failed') return { tone: 'bad', word: 'Failed' };
  return differences === 0
    ? { tone: 'good', word: 'No differences' }
    : { tone: 'bad', word: counted(differences, 'difference') };
}

/** @type {Record<string, string>} */
const phases = {
  library: 'Listing the library',
  objects: 'Comparing database and bucket',
  assets: 'Checking assets that are new or not mirrored',
  versions: 'Checking superseded files',
  repair: 'Starting repairs',
  inventory: 'Writing the inventory',
};

/** @type {Record<string, [string, string]>} */
const marks = {
  '=': ['good', 'Same'],
  '-': ['bad', 'Missing'],
  '*': ['bad', 'Differs'],
  '+': ['warn', 'In no record'],
  '!': ['bad', 'Error'],
};

export const verificationView = {
  title: 'Verification',
  /** @param {string[]} path */
  open([wanted = '']) {
    wantedLines = page;
    return loader.open(wanted);
  },
  refresh: () => (loader.found && ended(loader.found) ? Promise.resolve() : loader.refresh()),
  render() {
    const { found: run, error } = loader;
    if (!run) return notYet(error);
    const { tone, word } = outcomeOf(run);
    const { counts, progress } = run;
    const share = progress.total > 0 ? Math.min(1, progress.done / progress.total) : 0;
    const took = run.startedAt
      ? (new Date(run.finishedAt ?? Date.now()).getTime() - new Date(run.startedAt).getTime()) / 1000
      : undefined;
    const fact = (/** @type {string} */ name, /** @type {number} */ n) =>
      html`<div><dt>${name}</dt><dd>${number(n)}</dd></div>`;
    return html`
      <nav aria-label="You are here" class="crumbs"><a href="#/verify">Verifications</a>${
        run.connectionId ? html` <a href="#/connections/${run.connectionId}">Connection</a>` : nothing
      }</nav>
      ${trouble(error)}
      <section class="card" aria-labelledby="verification-title">
        <div class="head"><div><h1 id="verification-title" tabindex="-1">Verification</h1>
          <p class="soft">Of ${run.connectionId ? connectionName(run.connectionId) : 'everything'}, comparing ${run.deep ? 'every byte' : 'sizes and ETags'} · requested ${time(run.requestedAt)}</p></div>
          <p class="state">${pill(tone, word)}</p></div>
        ${run.error ? html`<p class="banner ${run.status === 'failed' ? 'bad' : 'warn'}"><strong>Reason:</strong> ${run.error}</p>` : nothing}
        ${
          ended(run)
            ? nothing
            : html`<div><span class="bar" role="progressbar" aria-label="Assets compared" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.floor(share * 100)}>
                <i class="transferring" .style=${`flex-grow: ${share}`}></i><i .style=${`flex-grow: ${1 - share}`}></i></span>
              <p class="soft small">${run.phase === null ? 'Waiting for a worker.' : phases[run.phase]}${run.phase === 'objects' ? html` · <b>${number(progress.done)}</b> of ${counted(progress.total, 'asset')}` : nothing}</p></div>`
        }
        <dl class="facts">
          ${fact('As expected', counts.same)}
          ${fact('Missing', counts.missing)}
          ${fact('Different', counts.different)}
          ${fact('In no record', counts.foreign)}
          ${fact('Errors', counts.errors)}
          ${counts.absent > 0 ? fact('No file in the library', counts.absent) : nothing}
          ${counts.skipped > 0 ? fact('Skipped by filters', counts.skipped) : nothing}
          ${counts.archived > 0 ? fact('Archived', counts.archived) : nothing}
          ${counts.moving > 0 ? fact('Changed during the verification', counts.moving) : nothing}
          ${run.repair ? fact('Repairs started', counts.repaired) : nothing}
          ${counts.bytesRead > 0 ? html`<div><dt>Read</dt><dd>${bytes(counts.bytesRead)}</dd></div>` : nothing}
          ${took === undefined ? nothing : html`<div><dt>${ended(run) ? 'Duration' : 'Running for'}</dt><dd>${duration(took)}</dd></div>`}
        </dl>
        ${
          run.status === 'done' && !run.repair && may('verify') && counts.missing + counts.different > 0
            ? html`<div class="actions"><button class="main" @click=${() => act(() => repairAll(run))}>Repair</button></div>`
            : nothing
        }
      </section>
      <section class="card" aria-labelledby="found-title"><h2 id="found-title">Findings</h2>${
        run.lines.length > 0
          ? html`${lineList(run.lines)}${moreButton(
              run.next !== null,
              () => {
                wantedLines += page;
                return loader.refresh();
              },
              'lines',
            )}`
          : empty(ended(run) ? 'No differences found.' : 'None so far.')
      }</section>`;
  },
};

/** @param {Verification} of */
async function repairAll({ connectionId }) {
  await verify({ ...(connectionId && { connectionId }), repair: true });
  return 'Started another verification, which repairs the differences.';
}

/** @param {Verification['lines']} lines */
const lineList = (lines) =>
  html`<ul class="events found">${repeat(
    lines,
    ({ number: at }) => at,
    ({ mark, key, assetId, text, difference }) => {
      const [tone, word] = difference || mark === '=' ? (marks[mark] ?? ['plain', mark]) : ['plain', 'No difference'];
      const what = html`<code>${key ?? assetId}</code>`;
      return html`<li class=${tone}><span>${assetId ? html`<a href="#/assets/${encodeURIComponent(assetId)}">${what}</a>` : key ? what : nothing}
        ${text ? html`<small>${text}</small>` : nothing}</span>${pill(tone, word)}</li>`;
    },
  )}</ul>`;
