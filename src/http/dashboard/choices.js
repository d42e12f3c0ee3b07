/** @import { Connection, Project } from './types.d.ts' */
import { api } from './api.js';
import { whileOpen } from './dialog.js';
import { html } from './vendor/lit-html/lit-html.js';
import { typeNames } from './words.js';

/** The choices in dialogs: types, the projects of a connection, and what is chosen. */

/** The types of the specification and others. @param {string[]} others */
export const typesWith = (others) => [...new Set([...Object.keys(typeNames), ...others])];

/**
 * Requests the projects while the dialog is open; null: the library does not list them.
 * @param {Pick<Connection, 'id'>} connection
 * @param {(projects: Project[] | null) => void} then
 */
export async function projectsOf({ id }, then) {
  const signal = whileOpen();
  /** @type {Project[] | null} */
  let projects = null;
  try {
    ({ projects } = await api(`/connections/${id}/projects`, { signal }));
  } catch {
    // The dialog shows it.
  }
  if (!signal.aborted) then(projects);
}

/**
 * The projects of these companies, in groups if there are several.
 * @param {Connection['companies']} companies
 * @param {Project[]} projects
 * @param {(project: Project) => string} toValue
 */
export function projectOptions(companies, projects, toValue) {
  const groups = companies
    .map(({ id, name }) => ({ name, own: projects.filter(({ companyId }) => companyId === id) }))
    .filter(({ own }) => own.length > 0);
  const options = (/** @type {Project[]} */ own) =>
    own.map((project) => html`<option value=${toValue(project)}>${project.name}</option>`);
  return companies.length > 1
    ? groups.map(({ name, own }) => html`<optgroup label=${name}>${options(own)}</optgroup>`)
    : groups.map(({ own }) => options(own));
}

/**
 * The chosen values of a picker, each with a button that removes it.
 * @param {string[]} values @param {(value: string) => string} toName @param {(left: string[]) => void} choose
 */
export const chips = (values, toName, choose) =>
  values.map((value) => {
    const remove = (/** @type {Event} */ event) => {
      const picker = /** @type {HTMLElement} */ (event.target).closest('.picker');
      choose(values.filter((it) => it !== value));
      /** @type {HTMLElement | null | undefined} */ (picker?.querySelector('input, select'))?.focus();
    };
    return html`<button type="button" class="small" aria-label="Remove ${toName(value)}" @click=${remove}>${toName(value)} ×</button>`;
  });
