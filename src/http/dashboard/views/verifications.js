/** @import { VerificationSummary } from '../types.d.ts' */
import { duration } from '../format.js';
import { listOf } from '../lists.js';
import { connectionName } from '../names.js';
import { head, listed, pill, time } from '../parts.js';
import { ifMay } from '../permissions.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html } from '../vendor/lit-html/lit-html.js';
import { verifyDialog } from '../verify-dialog.js';
import { outcomeOf } from './verification.js';

/** @type {ReturnType<typeof listOf<VerificationSummary>>} */
const runs = listOf('/verify', 'verifications');

export const verificationsView = {
  title: 'Verifications',
  open: () => runs.filter({}),
  refresh: () => runs.refresh(),
  render: () => html`
    <section class="card" aria-labelledby="verifications-title">
      <div class="head"><h1 id="verifications-title" tabindex="-1">Verifications</h1>
        ${ifMay('verify', () => html`<button class="main" @click=${() => verifyDialog(undefined)}>Verify …</button>`)}</div>
      ${listed(runs, 6, table, 'No verification yet. A scheduled one compares database and bucket every RECONCILE_INTERVAL.')}
    </section>`,
};

/** @param {VerificationSummary[]} rows */
const table = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Requested', 'What', 'How', 'Result', 'Duration')}
  <tbody role="rowgroup">${repeat(
    rows,
    ({ id }) => id,
    (run) => {
      const { tone, word } = outcomeOf(run);
      const { startedAt, finishedAt } = run;
      return html`<tr role="row">
        <th role="rowheader" scope="row"><a href="#/verify/${run.id}">${time(run.requestedAt)}</a>
          <small>${run.routine ? 'Scheduled' : 'By an operator'}</small></th>
        <td role="cell" data-label="What">${run.connectionId ? connectionName(run.connectionId) : 'Everything'}</td>
        <td role="cell" data-label="How">${run.deep ? 'Every byte' : 'Sizes and ETags'}${run.repair ? ', repairs' : ''}</td>
        <td role="cell" data-label="Result" class="whole">${pill(tone, word)}</td>
        <td role="cell" data-label="Duration">${
          startedAt && finishedAt ? duration((Date.parse(finishedAt) - Date.parse(startedAt)) / 1000) : ''
        }</td>
      </tr>`;
    },
  )}</tbody></table>`;
