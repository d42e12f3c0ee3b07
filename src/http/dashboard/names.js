/** @import { AssetSummary, Connection, FacetList, MirrorEvent } from './types.d.ts' */
import { api, queryOf } from './api.js';
import { draw } from './state.js';

/** @type {Map<string, string>} */
const names = new Map();
/** Ids that were requested, or that have no name. */
const requested = new Set();
/** The requests of names, one after the other, in the order in which they are shown. */
let queue = Promise.resolve();

/** What people call a connection. @param {Connection} connection */
export const nameOf = ({ user }) => user.name || user.email || user.id;

/** @param {Connection[]} connections */
function learnConnections(connections) {
  for (const connection of connections) names.set(connection.id, nameOf(connection));
}

/** @param {Pick<AssetSummary, 'id' | 'name'>[]} assets */
function learnAssets(assets) {
  for (const { id, name } of assets) if (name) names.set(id, name);
}

/**
 * The name of an id, if it is known. Otherwise it is requested, and shown later.
 * @param {string} id @param {() => Promise<unknown>} request learns the name
 */
function nameFor(id, request) {
  if (!names.has(id) && !requested.has(id)) {
    requested.add(id);
    queue = queue.then(request).then(draw, () => {
      // The id is shown instead.
    });
  }
  return names.get(id);
}

/**
 * The name of an event's asset or connection.
 * @param {Pick<MirrorEvent, 'assetId' | 'connectionId'>} event
 */
export function subjectOf({ assetId, connectionId }) {
  if (assetId !== null) {
    const request = async () => learnAssets((await api(`/assets${queryOf({ q: assetId, limit: 1 })}`)).assets);
    return nameFor(assetId, request) ?? assetId;
  }
  if (connectionId === null) return undefined;
  const request = async () => learnConnections([await api(`/connections/${encodeURIComponent(connectionId)}`)]);
  return nameFor(connectionId, request) ?? connectionId.slice(0, 8);
}

/** What people call a connection of which only the id is known. @param {string} id */
export const connectionName = (id) => subjectOf({ assetId: null, connectionId: id }) ?? id;

/** What people call a company or project of which only the id is known. @param {'companyId' | 'projectId'} facet @param {string} id */
export function facetName(facet, id) {
  const key = `${facet} ${id}`;
  return (
    nameFor(key, async () => {
      /** @type {FacetList} */
      const { facets } = await api(`/asset-facets${queryOf({ [facet]: id })}`);
      const name = facets[facet].find(({ value }) => value === id)?.name;
      if (name) names.set(key, name);
    }) ?? id
  );
}
