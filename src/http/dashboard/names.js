/** @import { AssetSummary, Connection, MirrorEvent } from './types.d.ts' */
import { api, queryOf } from './api.js';
import { draw } from './state.js';

/** @type {Map<string, string>} */
const names = new Map();
/** Ids that were requested, or that have no name. */
const requested = new Set();
/** Requests names one after the other, in the order in which they are shown. */
let line = Promise.resolve();

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
 * The name of an event's asset or connection. An unknown name is requested, and shown later.
 * @param {Pick<MirrorEvent, 'assetId' | 'connectionId'>} event
 */
export function subjectOf({ assetId, connectionId }) {
  const id = assetId ?? connectionId;
  if (id === null) return undefined;
  if (!names.has(id) && !requested.has(id)) {
    requested.add(id);
    line = line.then(() => requestName(id, assetId !== null));
  }
  return names.get(id) ?? (assetId === null ? id.slice(0, 8) : id);
}

/** What people call a connection of which only the id is known. @param {string} id */
export const connectionName = (id) => subjectOf({ assetId: null, connectionId: id }) ?? id;

/** @param {string} id @param {boolean} isAsset */
async function requestName(id, isAsset) {
  try {
    if (isAsset) learnAssets((await api(`/assets${queryOf({ q: id, limit: 1 })}`)).assets);
    else learnConnections([await api(`/connections/${encodeURIComponent(id)}`)]);
    draw();
  } catch {
    // The id is shown instead.
  }
}
