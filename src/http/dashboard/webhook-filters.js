/** @import { Connection, FacetList, Webhook } from './types.d.ts' */
import { api, queryOf } from './api.js';
import { chips } from './choices.js';
import { later } from './lists.js';
import { connectionName, facetName, nameOf } from './names.js';
import { companiesOf } from './parts.js';
import { html } from './vendor/lit-html/lit-html.js';
import { typeName, typeNames } from './words.js';

/** @typedef {keyof Webhook['filters']} List */
/** @typedef {{ id: string, name: string }} Suggestion */

/** @type {Record<List, string>} */
export const filterLabels = {
  connectionIds: 'Connections',
  companyIds: 'Companies',
  projectIds: 'Projects',
  assetTypes: 'Types',
};
const lists = /** @type {List[]} */ (Object.keys(filterLabels));

/** @param {List} list @param {string} value */
export function filterName(list, value) {
  if (list === 'connectionIds') return connectionName(value);
  if (list === 'assetTypes') return typeName(value);
  return facetName(list === 'companyIds' ? 'companyId' : 'projectId', value);
}

/** The filters of a webhook endpoint: values that are chosen by name, or given as ids. */
export class WebhookFilters {
  /** @type {Record<List, Suggestion[]>} */
  #suggested = { connectionIds: [], companyIds: [], projectIds: [], assetTypes: [] };
  /** @type {Map<string, string>} */
  #names = new Map();
  #typed = '';
  #searchSoon = later(() => this.#findConnections(this.#typed).catch(() => {}), 200);

  /** @param {Webhook['filters']} before @param {() => void} changed */
  constructor(before, changed) {
    this.chosen = /** @type {Record<List, string[]>} */ (
      Object.fromEntries(lists.map((list) => [list, before[list] ?? []]))
    );
    this.changed = changed;
  }

  /** In the form of the API: a list without values is no condition. */
  value() {
    return Object.fromEntries(lists.filter((list) => this.chosen[list].length > 0).map((it) => [it, this.chosen[it]]));
  }

  async suggest() {
    /** @type {[FacetList, unknown]} */
    const [{ facets }] = await Promise.all([api('/asset-facets'), this.#findConnections('')]);
    const toSuggestion = (/** @type {FacetList['facets']['type'][number]} */ { value, name }) => ({
      id: value,
      name: name ?? typeName(value),
    });
    const others = facets.type.map(toSuggestion).filter(({ id }) => !(id in typeNames));
    const types = Object.entries(typeNames).map(([id, name]) => ({ id, name }));
    this.#learn({ projectIds: facets.projectId.map(toSuggestion), assetTypes: [...types, ...others] });
  }

  /** Connections, and their companies, are too many to offer them all. @param {string} q */
  async #findConnections(q) {
    /** @type {{ connections: Connection[] }} */
    const { connections } = await api(`/connections${queryOf({ q, limit: 50 })}`);
    const companies = new Map(connections.flatMap((it) => it.companies).map(({ id, name }) => [id, { id, name }]));
    this.#learn({
      connectionIds: connections.map((it) => ({ id: it.id, name: `${nameOf(it)} · ${companiesOf(it)}` })),
      companyIds: [...companies.values()],
    });
  }

  /** @param {Partial<Record<List, Suggestion[]>>} found */
  #learn(found) {
    Object.assign(this.#suggested, found);
    for (const { id, name } of Object.values(found).flat()) this.#names.set(id, name);
    this.changed();
  }

  /** The values that a text means: an exact name or id, or else all whose names contain it. @param {List} list @param {string} text */
  async #meant(list, text) {
    const exact = this.#suggested[list].filter(({ id, name }) => id === text || name === text);
    if (exact.length > 0) return exact;
    if (list === 'connectionIds' || list === 'companyIds') await this.#findConnections(text);
    return this.#suggested[list].filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()));
  }

  /** Chooses what a field says. A text that is no name is taken as an id. @param {List} list @param {HTMLInputElement} field */
  async #add(list, field) {
    const text = field.value.trim();
    if (!text) return;
    const found = await this.#meant(list, text).catch(() => []);
    if (field.value.trim() !== text) return;
    field.setCustomValidity(found.length > 1 ? 'Several match. Choose one of them, or give an id.' : '');
    if (found.length > 1) return void field.reportValidity();
    field.value = '';
    this.#choose(list, [...this.chosen[list], found[0]?.id ?? text]);
  }

  /** @param {List} list @param {string[]} values */
  #choose(list, values) {
    this.chosen[list] = [...new Set(values)];
    this.changed();
  }

  pickers = () => lists.map((list) => this.#picker(list));

  /** @param {List} list */
  #picker(list) {
    const fieldOf = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target);
    const input = (/** @type {Event} */ event) => {
      const field = fieldOf(event);
      field.setCustomValidity('');
      // A suggestion was chosen, not typed.
      const isChosen = !(event instanceof InputEvent) || event.inputType === 'insertReplacementText';
      this.#typed = field.value.trim();
      if (isChosen) this.#add(list, field);
      else if (list === 'connectionIds' || list === 'companyIds') this.#searchSoon();
    };
    const enter = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== 'Enter' || !fieldOf(event).value.trim()) return;
      event.preventDefault();
      this.#add(list, fieldOf(event));
    };
    const leave = (/** @type {Event} */ event) => this.#add(list, fieldOf(event));
    return html`<div class="picker">
      <label>${filterLabels[list]}<input list=${`${list}-list`} placeholder=${this.chosen[list].length > 0 ? 'Add …' : 'All'} autocomplete="off"
        @input=${input} @keydown=${enter} @change=${leave}></label>
      <datalist id=${`${list}-list`}>${this.#suggested[list].map(({ name }) => html`<option value=${name}></option>`)}</datalist>
      ${chips(
        this.chosen[list],
        (value) => this.#names.get(value) ?? filterName(list, value),
        (left) => this.#choose(list, left),
      )}
    </div>`;
  }
}
