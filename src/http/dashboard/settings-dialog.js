/** @import { Connection, Project } from './types.d.ts' */

import { api } from './api.js';
import { chips, projectOptions, projectsOf, typesWith } from './choices.js';
import { openDialog, textOf } from './dialog.js';
import { bytes, counted } from './format.js';
import { nameOf } from './names.js';
import { ifMay, rolesNeeded } from './permissions.js';
import { withLabels } from './refusals.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { typeName } from './words.js';

/** @type {[string, number][]} */
const units = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1000],
];

/** Writes a time as a setting: `15m`. @param {number} ms */
const interval = (ms) => {
  const [unit, size] = units.find(([, size]) => ms % size === 0) ?? ['ms', 1];
  return `${ms / size}${unit}`;
};

/** @param {number | null} perSecond */
const rate = (perSecond) => (perSecond === null ? 'unlimited' : `${bytes(perSecond)}/s`);

/** @param {{ percent: number, assets: number }} limit */
const limit = ({ percent, assets }) => `${percent}%,${assets}`;

/** One tag per line. @param {Connection['tags']} tags */
const tagLines = (tags) =>
  Object.entries(tags)
    .map(([key, value]) => `${key}=${value}`)
    .join('\n');

/** The change that replaces the tags `before` by those in the lines; null removes a tag. @param {Connection['tags']} before @param {string} lines */
function tagChange(before, lines) {
  const wanted = lines.split('\n').filter((line) => line.trim());
  const pairs = wanted.map((line) => {
    const [key = '', ...value] = line.split('=');
    return [key.trim(), value.join('=').trim()];
  });
  const removed = Object.keys(before).map((key) => [key, null]);
  return Object.fromEntries([...removed, ...pairs]);
}

const lists = /** @type {const} */ (['assetTypes', 'projectIds', 'companyIds']);

/** The labels of the fields. A list has two: that of `include` or `exclude`, and its own. @type {Record<string, string>} */
const labels = {
  syncInterval: 'Time between syncs',
  concurrency: 'Maximum assets at once',
  bandwidth: 'Bandwidth per process',
  holdMissing: 'Missing assets',
  holdReplaced: 'Replaced assets',
  include: 'Mirror only these',
  exclude: 'Skip these',
  assetTypes: 'Types',
  projectIds: 'Projects',
  companyIds: 'Companies',
  tags: 'Tags',
};

/** `include.assetTypes` is in "Mirror only these, Types". @param {string} field */
const labelOf = (field) =>
  field
    .split('.')
    .flatMap((part) => labels[part] ?? [])
    .join(', ');

/**
 * The settings of a connection. An empty field has the default of the environment.
 * @param {Connection} connection
 * @param {string[]} seenTypes types beyond those of the specification
 * @param {() => unknown} then
 */
export function settingsDialog(connection, seenTypes, then) {
  const { settings } = connection;
  const isOwn = (/** @type {string} */ name) => settings.own.includes(name);
  /** The fields and their present values; only changed ones are sent. */
  const before = {
    syncInterval: isOwn('syncInterval') ? interval(settings.syncInterval) : '',
    concurrency: isOwn('concurrency') ? String(settings.concurrency) : '',
    bandwidth: isOwn('bandwidth') ? (settings.bandwidthTimetable ?? rate(settings.bandwidth)) : '',
    holdMissing: isOwn('holdMissing') ? limit(settings.holdMissing) : '',
    holdReplaced: isOwn('holdReplaced') ? limit(settings.holdReplaced) : '',
  };
  const field = (/** @type {keyof typeof before} */ name, /** @type {string} */ hint) =>
    html`<label>${labels[name]}<input name=${name} .value=${before[name]} placeholder=${hint} autocomplete="off"></label>`;
  const choices = new Choices(connection, seenTypes, () => show());
  let hasUnknown = false;
  const show = openDialog({
    title: `Settings of ${nameOf(connection)}`,
    label: 'Save',
    buttons: () => (hasUnknown ? html`<button name="force" value="yes">Save anyway</button>` : nothing),
    then,
    content: () => html`
      <p class="soft small">Changes apply at once. Empty fields use the default of the environment. Files stay in the bucket, even if a filter skips them now.</p>
      <fieldset class="fields three"><legend>Syncs and transfers</legend>
        ${field('syncInterval', interval(settings.syncInterval))}
        ${field('concurrency', String(settings.concurrency))}
        ${field('bandwidth', 'such as 20 MiB/s')}
      </fieldset>
      ${
        /** @type {const} */ (['include', 'exclude']).map(
          (side) => html`<fieldset class="fields three"><legend>${labels[side]}</legend>
          ${lists.map((list) => choices.picker(side, list))}</fieldset>`,
        )
      }
      ${ifMay(
        'acceptHeldChanges',
        () => html`<fieldset class="fields two"><legend>Hold the changes of a company until you accept them, if they exceed these limits (percentage, number of assets)</legend>
          ${field('holdMissing', limit(settings.holdMissing))}${field('holdReplaced', limit(settings.holdReplaced))}</fieldset>`,
      )}
      ${rolesNeeded({ 'Limits of held changes': 'acceptHeldChanges' })}
      <fieldset class="fields"><legend>${labels.tags}</legend>
        <label>One per line<textarea name="tags" rows="2" placeholder="client=acme" .value=${tagLines(connection.tags)}></textarea></label>
      </fieldset>`,
    async send(form) {
      /** @type {Record<string, any>} */
      const change = choices.changes();
      for (const [name, value] of Object.entries(before)) {
        // The role may not change a field that is not shown.
        if (!form.has(name)) continue;
        const text = textOf(form, name) ?? '';
        if (text !== value) change[name] = name === 'concurrency' && /^\d+$/.test(text) ? Number(text) : text || null;
      }
      const lines = (textOf(form, 'tags') ?? '').replaceAll('\r', '');
      if (lines !== tagLines(connection.tags)) change.tags = tagChange(connection.tags, lines);
      if (Object.keys(change).length === 0) return 'Nothing was changed.';
      if (form.has('force')) change.force = true;
      return save(connection.id, change).catch((error) => {
        hasUnknown = error.code === 'unknown_name';
        throw withLabels(error, labelOf);
      });
    },
  });
  projectsOf(connection, (projects) => {
    choices.projects = projects;
    show();
  });
}

/** @param {string} id @param {object} change */
async function save(id, change) {
  const { changed } = await api(`/connections/${id}`, { method: 'PATCH', body: change });
  const parts = [
    changed.skipped > 0 && `${counted(changed.skipped, 'asset')} skipped`,
    changed.unskipped > 0 && `${counted(changed.unskipped, 'asset')} no longer skipped`,
    changed.syncId && 'a full sync was started',
  ].filter(Boolean);
  return `Settings changed${parts.length > 0 ? `: ${parts.join(', ')}` : ''}.`;
}

/** @typedef {'include' | 'exclude'} Side */
/** @typedef {typeof lists[number]} List */

/** The types, projects and companies that a connection mirrors or skips, by name. */
class Choices {
  /** Undefined: loading; null: the library does not list them. @type {Project[] | null | undefined} */
  projects;
  /** @type {Map<string, string[]>} */
  #chosen = new Map();

  /** @param {Connection} connection @param {string[]} seenTypes @param {() => void} changed */
  constructor({ settings, companies }, seenTypes, changed) {
    this.settings = settings;
    this.companies = companies;
    this.types = typesWith(seenTypes);
    this.changed = changed;
  }

  /** @param {Side} side @param {List} list */
  #saved = (side, list) => (this.settings.own.includes(`${side}.${list}`) ? this.settings[side][list] : []);
  /** @param {Side} side @param {List} list */
  #current = (side, list) => this.#chosen.get(`${side}.${list}`) ?? this.#saved(side, list);
  /** @param {Side} side @param {List} list @param {string[]} values */
  #choose(side, list, values) {
    this.#chosen.set(`${side}.${list}`, [...new Set(values)]);
    this.changed();
  }

  /** In the form of the API: null is the default. */
  changes() {
    /** @type {Record<string, Record<string, string[] | null>>} */
    const change = {};
    for (const side of /** @type {const} */ (['include', 'exclude'])) {
      for (const list of lists) {
        const values = this.#current(side, list);
        if (values.join('\n') === this.#saved(side, list).join('\n')) continue;
        change[side] = { ...change[side], [list]: values.length > 0 ? values : null };
      }
    }
    return change;
  }

  /** @param {List} list @param {string} value */
  #nameOf(list, value) {
    if (list === 'assetTypes') return typeName(value);
    const all = list === 'companyIds' ? this.companies : (this.projects ?? []);
    return all.find(({ id }) => id === value)?.name ?? value;
  }

  /** @param {List} list */
  #options(list) {
    if (list === 'projectIds') return projectOptions(this.companies, this.projects ?? [], ({ id }) => id);
    const values = list === 'assetTypes' ? this.types : this.companies.map(({ id }) => id);
    return values.map((value) => html`<option value=${value}>${this.#nameOf(list, value)}</option>`);
  }

  /** The filter in effect while nothing is chosen, or how to choose more. @param {Side} side @param {List} list */
  #hint(side, list) {
    if (list === 'projectIds' && this.projects === undefined) return 'Asking the library …';
    if (this.#current(side, list).length > 0) return 'Add …';
    const { own, [side]: inEffect } = this.settings;
    const inherited = own.includes(`${side}.${list}`) ? [] : inEffect[list];
    return inherited.map((value) => this.#nameOf(list, value)).join(', ') || (side === 'include' ? 'All' : 'None');
  }

  /** @param {Side} side @param {List} list */
  picker(side, list) {
    const values = this.#current(side, list);
    if (list === 'projectIds' && this.projects === null) {
      const type = (/** @type {Event} */ event) =>
        this.#choose(side, list, /** @type {HTMLInputElement} */ (event.target).value.split(/[\s,]+/).filter(Boolean));
      return html`<label>Project ids<input .value=${values.join(', ')} @change=${type} autocomplete="off"><small>The library does not list its projects now. Separate ids by commas.</small></label>`;
    }
    const add = (/** @type {Event} */ event) => {
      const select = /** @type {HTMLSelectElement} */ (event.target);
      this.#choose(side, list, [...values, select.value]);
      select.value = '';
    };
    return html`<div class="picker">
      <label>${labels[list]}<select name="${side}.${list}" @change=${add} ?disabled=${list === 'projectIds' && !this.projects}>
        <option value="">${this.#hint(side, list)}</option>${this.#options(list)}</select></label>
      ${chips(
        values,
        (value) => this.#nameOf(list, value),
        (left) => this.#choose(side, list, left),
      )}
    </div>`;
  }
}
