/** @import { FacetList, Webhook } from './types.d.ts' */
import { textOf } from './dialog.js';
import { connectionName, facetName } from './names.js';
import { html } from './vendor/lit-html/lit-html.js';
import { typeName } from './words.js';

/** @typedef {keyof Webhook['filters']} List */

/** @type {Record<List, string>} */
export const filterLabels = {
  connectionIds: 'Connections',
  companyIds: 'Companies',
  projectIds: 'Projects',
  assetTypes: 'Types',
};
const lists = /** @type {List[]} */ (Object.keys(filterLabels));

/** @typedef {FacetList['facets']} Facets */
const facetOf = /** @type {const} */ ({
  connectionIds: 'connectionId',
  companyIds: 'companyId',
  projectIds: 'projectId',
  assetTypes: 'type',
});

/** @param {List} list @param {string} value */
export function filterName(list, value) {
  const facet = facetOf[list];
  if (facet === 'connectionId') return connectionName(value);
  return facet === 'type' ? typeName(value) : facetName(facet, value);
}

/** A field for each filter of a webhook endpoint. `facets`: suggestions. @param {Webhook['filters']} filters @param {Facets | undefined} facets */
export const filterFields = (filters, facets) =>
  lists.map(
    (list) => html`<label>${filterLabels[list]}<input name=${list} list="${list}-list" placeholder="All"
      .value=${(filters[list] ?? []).join(', ')} autocomplete="off"><datalist id="${list}-list">${facets?.[
        facetOf[list]
      ].map(({ value, name }) => html`<option value=${value}>${name ?? typeName(value)}</option>`)}</datalist></label>`,
  );

/** In the form of the API: an empty field is no condition. @param {FormData} form */
export function filtersIn(form) {
  /** @type {Webhook['filters']} */
  const filters = {};
  for (const list of lists) {
    const ids = textOf(form, list)
      ?.split(',')
      .map((id) => id.trim());
    if (ids) filters[list] = ids.filter(Boolean);
  }
  return filters;
}
