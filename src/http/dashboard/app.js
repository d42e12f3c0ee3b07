import { api } from './api.js';
import { focusHeading } from './focus.js';
import { follow } from './live.js';
import { connectionName } from './names.js';
import { share, trouble } from './parts.js';
import { may, readMe } from './permissions.js';
import { clearNotices, draw, onDraw, say, state } from './state.js';
import { render } from './vendor/lit-html/lit-html.js';
import { accessView } from './views/access.js';
import { activity } from './views/activity.js';
import { assetView } from './views/asset.js';
import { assetsView } from './views/assets.js';
import { assuranceView } from './views/assurance.js';
import { auditView } from './views/audit.js';
import { connectionView } from './views/connection.js';
import { drillView } from './views/drill.js';
import { overview } from './views/overview.js';
import { verificationView } from './views/verification.js';
import { verificationsView } from './views/verifications.js';
import { webhookView } from './views/webhook.js';
import { webhooksView } from './views/webhooks.js';
import { eventWords } from './words.js';

/** The minimum time between two refreshes, and the time between two while no event arrives. */
const refreshMs = 2000;
const beatMs = 15_000;
const keptEvents = 100;

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
const live = /** @type {HTMLElement} */ (document.getElementById('live'));
main.replaceChildren();

/** @typedef {{ title: string, open: (path: string[], query: URLSearchParams) => Promise<unknown>, refresh: () => Promise<unknown>, render: () => unknown }} View */
/** @type {View} */
let view = overview;
let shownPath = '';

/** @param {string} first @param {string[]} rest @returns {[View, string]} */
function viewOf(first, rest) {
  if (first === 'connections' && rest.length > 0) return [connectionView, 'overview'];
  if (first === 'assets') return rest.length > 0 ? [assetView, 'assets'] : [assetsView, 'assets'];
  if (first === 'verify') return [rest.length > 0 ? verificationView : verificationsView, 'verify'];
  if (first === 'assurance') return [assuranceView, 'assurance'];
  if (first === 'drills') return [drillView, 'assurance'];
  if (first === 'webhooks') return [rest.length > 0 ? webhookView : webhooksView, 'webhooks'];
  if (first === 'activity') return [activity, 'activity'];
  if (first === 'access') return [accessView, 'access'];
  if (first === 'audit') return [auditView, 'audit'];
  return [overview, 'overview'];
}

async function go() {
  const [path = '', query = ''] = location.hash.slice(1).split('?');
  const [first = '', ...rest] = path.split('/').filter(Boolean);
  const [next, tab] = viewOf(first, rest);
  const arrived = shownPath !== '' && shownPath !== path;
  shownPath = path || '/';
  view = next;
  document.title = `${view.title} · asset-mirror`;
  for (const link of document.querySelectorAll('a[data-view]')) {
    if (link instanceof HTMLElement && link.dataset.view === tab) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  draw();
  if (arrived) {
    clearNotices();
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  await view.open(rest, new URLSearchParams(query));
  draw();
}

let isRefreshing = false;
let isWanted = false;
/** Refreshes the view: one request at a time, and none while the page is hidden. */
async function refresh() {
  if (isRefreshing || document.hidden) {
    isWanted = true;
    return;
  }
  isRefreshing = true;
  isWanted = false;
  await view.refresh().catch(() => {});
  setTimeout(() => {
    isRefreshing = false;
    if (isWanted) refresh();
  }, refreshMs);
}

/** Shows the name of the operator, and hides the audit log from those who may not read it. */
function showMe() {
  const link = /** @type {HTMLElement} */ (document.getElementById('me'));
  if (state.me) link.textContent = state.me.name;
  const audit = /** @type {HTMLElement} */ (document.querySelector('a[data-view=audit]'));
  audit.hidden = !may('listAudit');
}

onDraw(() => {
  const focused = document.activeElement;
  const section = focused?.closest('section');
  try {
    render(view.render(), main);
  } catch (error) {
    render(trouble(/** @type {Error} */ (error)), main);
    throw error;
  } finally {
    if (focused && !focused.isConnected) focusHeading(section);
  }
});
addEventListener('hashchange', go);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) refresh();
});
setInterval(() => {
  draw();
  refresh();
}, beatMs);

follow({
  onStatus(status) {
    const before = state.status;
    state.status = status;
    // Screen readers announce the notice; progress itself is silent.
    if (before && share(before.assets) < 1 && share(status.assets) === 1)
      say('All assets that have a file are mirrored.');
    draw();
    refresh();
  },
  onEvent(event) {
    state.events = [event, ...state.events.filter(({ id }) => id !== event.id)].slice(0, keptEvents);
    const { after } = eventWords(event);
    const name = event.connectionId ? connectionName(event.connectionId) : '';
    if (event.kind === 'connection.disconnected') say(`${name} ${after}.`, 'bad');
    if (event.kind === 'connection.recovered') say(`${name} ${after}.`);
    draw();
    refresh();
  },
  onLine(good) {
    live.dataset.state = good ? 'good' : 'lost';
    live.textContent = good ? 'Live' : 'Reconnecting';
  },
});

api('/events?limit=20')
  .then((page) => {
    state.events = /** @type {{ events: typeof state.events }} */ (page).events;
    draw();
  })
  .catch(() => {});
readMe()
  .catch(() => {})
  .finally(() => {
    showMe();
    go();
  });
