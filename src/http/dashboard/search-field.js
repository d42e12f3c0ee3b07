import { live } from './vendor/lit-html/directives/live.js';
import { html, noChange } from './vendor/lit-html/lit-html.js';

/** @param {string} id */
const fieldOf = (id) => /** @type {HTMLInputElement | null} */ (document.getElementById(id));

/** The text in a search field; undefined: it is empty. @param {string} id */
export const typed = (id) => fieldOf(id)?.value.trim() || undefined;

/** The value of a search field, from the address. Unchanged while the user types. @param {string} id @param {string | undefined} value */
export const searched = (id, value) => (document.activeElement === fieldOf(id) ? noChange : live(value ?? ''));

/** Calls `then` with the new value of a field; undefined: it is empty. @param {(value: string | undefined) => void} then */
export const chosen = (then) => (/** @type {Event} */ event) =>
  then(/** @type {HTMLInputElement | HTMLSelectElement} */ (event.target).value.trim() || undefined);

/** @param {string[][]} options values and their texts @param {string | undefined} selected @param {(value: string | undefined) => void} then */
export const select = (options, selected, then) =>
  html`<select @change=${chosen(then)}>${options.map(
    ([value, text]) => html`<option value=${value} .selected=${value === (selected ?? '')}>${text}</option>`,
  )}</select>`;
