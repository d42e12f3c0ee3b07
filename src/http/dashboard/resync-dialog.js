/** @import { Connection, Project } from './types.d.ts' */
import { resync } from './actions.js';
import { projectOptions, projectsOf, typesWith } from './choices.js';
import { openDialog, textOf } from './dialog.js';
import { nameOf } from './names.js';
import { withLabels } from './refusals.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';
import { typeName } from './words.js';

/** The labels of the fields. @type {Record<string, string>} */
const labels = { companyId: 'Company', projectId: 'Project', assetType: 'Type', assetIds: 'Asset ids' };

/**
 * Starts an incremental, full or partial sync.
 * @param {Connection} connection
 * @param {string[]} seenTypes types beyond those of the specification
 * @param {() => unknown} then
 */
export function resyncDialog(connection, seenTypes, then) {
  let what = 'new';
  let companyId = '';
  /** Undefined: loading; null: the library does not answer. @type {Project[] | null | undefined} */
  let projects;
  const types = typesWith(seenTypes);
  const choose = (/** @type {Event} */ event) => {
    what = /** @type {HTMLInputElement} */ (event.target).value;
    if (what === 'part' && !projects) loadProjects();
    show();
  };
  const chooseCompany = (/** @type {Event} */ event) => {
    companyId = /** @type {HTMLSelectElement} */ (event.target).value;
    show();
  };
  const loadProjects = () =>
    projectsOf(connection, (found) => {
      projects = found;
      show();
    });
  const choice = (/** @type {string} */ value, /** @type {string} */ name, /** @type {string} */ hint) => html`
    <label class="choice"><input type="radio" name="what" value=${value} .checked=${what === value} @change=${choose}>
      <span>${name}<small>${hint}</small></span></label>`;
  const show = openDialog({
    title: `Sync ${nameOf(connection)}`,
    label: 'Sync now',
    then,
    content: () => html`
      <fieldset><legend>What to sync</legend>
        ${choice('new', 'Incremental', 'Lists new uploads only. Takes seconds.')}
        ${choice('everything', 'Full', 'Lists the whole library, retries failed assets, then verifies and repairs the bucket.')}
        ${choice('part', 'A part', 'A project, a type, uploads since a date, or single assets.')}
      </fieldset>
      ${what === 'part' ? partFields(connection, { projects, companyId, types, chooseCompany }) : nothing}`,
    async send(form) {
      if (what !== 'part') return resync(connection.id, { mode: what === 'new' ? 'incremental' : 'full' });
      return resync(connection.id, { mode: 'full', ...partOf(form) }).catch((error) => {
        throw withLabels(error, (field) => labels[field]);
      });
    },
  });
}

/**
 * @param {Connection} connection
 * @param {{ projects: Project[] | null | undefined, companyId: string, types: string[], chooseCompany: (event: Event) => void }} shown
 */
function partFields({ companies }, { projects, companyId, types, chooseCompany }) {
  const company = html`<label>Company<select name="companyId" @change=${chooseCompany}><option value="">All companies</option>${companies.map(
    ({ id, name }) => html`<option value=${id}>${name}</option>`,
  )}</select></label>`;
  return html`<fieldset class="fields two"><legend>Which part (all conditions must match)</legend>
    ${companies.length > 1 ? company : nothing}
    ${projectField(companies, projects, companyId)}
    <label>Type<select name="assetType"><option value="">All types</option>${types.map(
      (type) => html`<option value=${type}>${typeName(type)}</option>`,
    )}</select></label>
    <label>Uploaded since<input name="since" type="date"></label>
    <label class="wide">Asset ids, one per line<textarea name="assetIds" rows="2"></textarea></label>
  </fieldset>`;
}

/** @param {Connection['companies']} companies @param {Project[] | null | undefined} projects @param {string} companyId */
function projectField(companies, projects, companyId) {
  if (projects === null)
    return html`<label>Project id<input name="projectId" autocomplete="off"><small>The library does not list its projects now.</small></label>`;
  const toValue = (/** @type {Project} */ project) => JSON.stringify([project.companyId, project.id]);
  const all = projects ? (projects.length > 0 ? 'All projects' : 'No projects') : 'Asking the library …';
  return html`<label>Project<select name="project" ?disabled=${!projects}>
      <option value="">${all}</option>
      ${projectOptions(
        companies.filter(({ id }) => companyId === '' || id === companyId),
        projects ?? [],
        toValue,
      )}</select></label>`;
}

/** @param {FormData} form */
function partOf(form) {
  const ids = textOf(form, 'assetIds')
    ?.split(/[\s,]+/)
    .filter(Boolean);
  const [projectCompany, projectId] = JSON.parse(textOf(form, 'project') ?? '[]');
  const since = textOf(form, 'since');
  const part = {
    companyId: projectCompany ?? textOf(form, 'companyId'),
    projectId: projectId ?? textOf(form, 'projectId'),
    assetType: textOf(form, 'assetType'),
    // The start of that day, local time.
    since: since && new Date(`${since}T00:00`).toISOString(),
    assetIds: ids?.length ? ids : undefined,
  };
  if (Object.values(part).every((it) => it === undefined))
    throw new Error('Choose a project, a type or a date, or enter asset ids.');
  return part;
}
