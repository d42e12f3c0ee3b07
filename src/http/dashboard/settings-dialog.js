/** @import { Connection } from './types.d.ts' */
import { api } from './api.js';
import { openDialog, textOf } from './dialog.js';
import { bytes, counted } from './format.js';
import { nameOf } from './names.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';

/** @type {[string, number][]} */
const units = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
];

/** As a duration: `15m`. @param {number} ms */
const interval = (ms) => {
  const [unit, size] = units.find(([, size]) => ms % size === 0) ?? ['ms', 1];
  return `${ms / size}${unit}`;
};

/** The lists of the filters and their labels. */
const lists = /** @type {const} */ ([
  ['assetTypes', 'types'],
  ['projectIds', 'project ids'],
  ['companyIds', 'company ids'],
]);

/** @param {string | undefined} text */
const namesIn = (text) => {
  const names = (text ?? '')
    .split(',')
    .map((name) => name.trim())
    .filter(Boolean);
  return names.length > 0 ? names : null;
};

/**
 * The settings of a connection. An empty field has the default of the environment.
 * @param {Connection} connection
 * @param {() => unknown} then
 */
export function settingsDialog(connection, then) {
  const { settings } = connection;
  const isOwn = (/** @type {string} */ name) => settings.own.includes(name);
  /** The fields and their present values; only changed ones are sent. */
  const before = new Map([
    ['syncInterval', isOwn('syncInterval') ? interval(settings.syncInterval) : ''],
    ['concurrency', isOwn('concurrency') ? String(settings.concurrency) : ''],
    ['bandwidth', settings.bandwidth === null ? '' : `${bytes(settings.bandwidth)}/s`],
    .../** @type {const} */ (['include', 'exclude']).flatMap((side) =>
      lists.map(
        ([list]) =>
          /** @type {[string, string]} */ ([
            `${side}.${list}`,
            isOwn(`${side}.${list}`) ? settings[side][list].join(', ') : '',
          ]),
      ),
    ),
  ]);
  const field = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    html`<label>${label}<input name=${name} .value=${before.get(name) ?? ''} placeholder=${hint} autocomplete="off"></label>`;
  let hasUnknown = false;
  openDialog({
    title: `Settings of ${nameOf(connection)}`,
    label: 'Save',
    then,
    content: () => html`
      <p class="soft small">Changes apply at once. Empty fields use the default of the environment. Files that are skipped now stay in the bucket.</p>
      <fieldset class="fields three"><legend>Syncs and transfers</legend>
        ${field('syncInterval', 'Time between syncs', interval(settings.syncInterval))}
        ${field('concurrency', 'Assets at once', String(settings.concurrency))}
        ${field('bandwidth', 'Bandwidth per process', 'such as 20 MiB/s')}
      </fieldset>
      <fieldset class="fields three"><legend>Mirror only these (separated by commas)</legend>
        ${lists.map(([list, name]) => field(`include.${list}`, `Only ${name}`, settings.include[list].join(', ') || 'all'))}
      </fieldset>
      <fieldset class="fields three"><legend>Skip these</legend>
        ${lists.map(([list, name]) => field(`exclude.${list}`, `Not ${name}`, settings.exclude[list].join(', ') || 'none'))}
      </fieldset>
      ${hasUnknown ? html`<label class="choice"><input type="checkbox" name="force"><span>Save unknown names, too</span></label>` : nothing}`,
    async send(form) {
      /** @type {Record<string, any>} */
      const change = {};
      for (const [name, value] of before) {
        const text = textOf(form, name);
        if ((text ?? '') === value) continue;
        const [side = '', list] = name.split('.');
        if (list !== undefined) change[side] = { ...change[side], [list]: namesIn(text) };
        else change[name] = text === undefined ? null : name === 'concurrency' ? Number(text) : text;
      }
      if (Object.keys(change).length === 0) return 'Nothing was changed.';
      if (form.has('force')) change.force = true;
      const { changed } = await api(`/connections/${connection.id}`, { method: 'PATCH', body: change }).catch(
        (error) => {
          hasUnknown ||= error.code === 'unknown_name';
          throw error;
        },
      );
      const parts = [
        changed.skipped > 0 && `${counted(changed.skipped, 'asset')} skipped`,
        changed.letIn > 0 && `${counted(changed.letIn, 'asset')} no longer skipped`,
        changed.syncId && 'a full sync was started',
      ].filter(Boolean);
      return `Settings changed${parts.length > 0 ? `: ${parts.join(', ')}` : ''}.`;
    },
  });
}
