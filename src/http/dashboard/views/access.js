/** @import { Me, Session, Token } from '../types.d.ts' */
import { act } from '../actions.js';
import { api } from '../api.js';
import { number } from '../format.js';
import { listOf } from '../lists.js';
import { head, listed, pill, time } from '../parts.js';
import { ifMay, may } from '../permissions.js';
import { state } from '../state.js';
import { revokeTokenDialog, tokenDialog } from '../token-dialogs.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @type {ReturnType<typeof listOf<Session>>} */
const sessions = listOf('/sessions', 'sessions');
/** @type {ReturnType<typeof listOf<Token>>} */
const tokens = listOf('/tokens', 'tokens');

/** How many sessions the API lists. */
const mostSessions = 1000;

const refresh = () => Promise.all([sessions.refresh(), may('listTokens') ? tokens.refresh() : undefined]);

/** @type {Record<Me['method'], string>} */
const methods = {
  admin_token: 'ADMIN_TOKEN',
  api_token: 'API token',
  oidc: 'OpenID provider',
  device: 'OpenID provider, in a terminal',
};
/** @type {[Me['role'], string][]} */
const roleWords = [
  ['viewer', 'See everything except tokens and the audit log. See files only if VIEWER_MEDIA is set.'],
  ['operator', 'Also see files; sync, retry, pause, verify, protect, connect, and change settings.'],
  [
    'admin',
    'Also disconnect, accept held changes, end protection, erase, manage webhooks, keys and tokens, and read the audit log.',
  ],
];

export const accessView = {
  title: 'Access',
  open: () => Promise.all([sessions.filter({}), may('listTokens') ? tokens.filter({}) : undefined]),
  refresh,
  render: () => html`
    ${state.me ? youCard(state.me) : nothing}
    ${ifMay('listTokens', tokensCard)}
    <section class="card" aria-labelledby="sessions-title">
      <h2 id="sessions-title">${may('listTokens') ? 'Sessions' : 'Your sessions'}</h2>
      ${listed(sessions, 3, sessionTable, 'Nobody is signed in with a browser or a terminal.')}
    </section>`,
};

/** @param {Me} me */
const youCard = ({ name, role, method, grants }) => html`
  <section class="card" aria-labelledby="access-title">
    <div class="head"><div><h1 id="access-title" tabindex="-1">${name}</h1><p class="soft">Signed in with: ${methods[method]}</p></div>
      <p class="state">${pill('go', role)}</p></div>
    <table role="table" class="cards">${head('Role', 'Allowed', 'Who has it')}<tbody role="rowgroup">${roleWords.map(
      ([of, words]) => html`<tr role="row">
        <th role="rowheader" scope="row">${of}${of === role ? html` <small>yours</small>` : nothing}</th>
        <td role="cell" data-label="Allowed" class="why">${words}</td>
        <td role="cell" data-label="Who has it">${grants[of]?.join(', ') || html`<span class="soft">ADMIN_TOKEN, and tokens with this role</span>`}</td></tr>`,
    )}</tbody></table>
  </section>`;

const tokensCard = () => html`
  <section class="card" aria-labelledby="tokens-title">
    <div class="head"><h2 id="tokens-title">API tokens</h2>
      <button class="main" @click=${() => tokenDialog(tokens.refresh)}>Create a token …</button></div>
    ${listed(tokens, 3, tokenTable, 'No API token yet. Programs use one instead of ADMIN_TOKEN.')}
  </section>`;

/** @param {Token[]} rows */
const tokenTable = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Token', 'Role', 'Last used', 'Expires', 'Created by', { hidden: 'Actions' })}<tbody role="rowgroup">${repeat(
    rows,
    ({ id }) => id,
    (token) => html`<tr role="row">
      <th role="rowheader" scope="row">${token.name}<small><code>${token.beginning}…</code></small></th>
      <td role="cell" data-label="Role">${token.role}</td>
      <td role="cell" data-label="Last used">${time(token.lastUsedAt)}</td>
      <td role="cell" data-label="Expires" class="whole">${new Date(token.expiresAt) > new Date() ? time(token.expiresAt) : pill('bad', 'Expired')}</td>
      <td role="cell" data-label="Created by">${token.createdBy}</td>
      <td role="cell" class="right"><button class="small" @click=${() => revokeTokenDialog(token, tokens.refresh)} aria-label="Revoke ${token.name} …">Revoke …</button></td></tr>`,
  )}</tbody></table>`;

/** @param {Session[]} rows */
const sessionTable = (rows) => html`<table role="table" class="cards small-figures">
  ${head('Operator', 'Role', 'From', 'Last used', 'Ends', { hidden: 'Actions' })}<tbody role="rowgroup">${repeat(
    rows,
    ({ id }) => id,
    (session) => html`<tr role="row">
      <th role="rowheader" scope="row">${session.name} ${session.isThis ? pill('go', 'This one') : nothing}<small>${methods[session.method]}</small></th>
      <td role="cell" data-label="Role">${session.role}</td>
      <td role="cell" data-label="From" class="why">${session.address}<small class="soft">${session.userAgent}</small></td>
      <td role="cell" data-label="Last used">${time(session.lastUsedAt)}</td>
      <td role="cell" data-label="Ends">${time(session.endsAt)}</td>
      <td role="cell" class="right">${
        session.isThis
          ? nothing
          : html`<button class="small" @click=${() => act(() => end(session), refresh)} aria-label="End the session of ${session.name}, from ${session.address}">End</button>`
      }</td></tr>`,
  )}</tbody></table>
  ${rows.length >= mostSessions ? html`<p class="soft small">Only the ${number(mostSessions)} sessions that were used last are listed.</p>` : nothing}`;

/** @param {Session} session */
async function end({ id, name }) {
  await api(`/sessions/${encodeURIComponent(id)}`, { method: 'DELETE' });
  return `Ended a session of ${name}.`;
}
