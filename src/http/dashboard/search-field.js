import { live } from './vendor/lit-html/directives/live.js';
import { noChange } from './vendor/lit-html/lit-html.js';

/** @param {string} id */
const fieldOf = (id) => /** @type {HTMLInputElement | null} */ (document.getElementById(id));

/** What is typed in a search field. @param {string} id */
export const typed = (id) => fieldOf(id)?.value.trim() || undefined;

/** The value of a search field: that of the address, but not while the user types. @param {string} id @param {string | undefined} value */
export const searched = (id, value) => (document.activeElement === fieldOf(id) ? noChange : live(value ?? ''));
