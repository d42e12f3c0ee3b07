/** @import { AssetSummary, Connection } from './types.d.ts' */
import { api } from './api.js';
import { counted } from './format.js';
import { say } from './state.js';

/**
 * Runs an action, shows its outcome, then refreshes the view.
 * @param {() => Promise<string>} action
 * @param {() => unknown} [then]
 */
export async function act(action, then = () => {}) {
  try {
    say(await action());
  } catch (error) {
    say(/** @type {Error} */ (error).message, 'bad');
  }
  then();
}

/** @param {Pick<AssetSummary, 'id' | 'name'>} asset */
export async function retryAsset({ id, name }) {
  await api(`/assets/${encodeURIComponent(id)}/retry`, { method: 'POST' });
  return `Retrying ${name ?? id}.`;
}

/** @param {string} id */
export async function retryFailed(id) {
  const { retried } = await api(`/connections/${id}/retry-failed`, { method: 'POST' });
  return `Retrying ${counted(retried, 'asset')}.`;
}

/** @param {Connection} connection @param {'pause' | 'resume'} verb */
export async function pauseOrResume({ id }, verb) {
  await api(`/connections/${id}/${verb}`, { method: 'POST' });
  return verb === 'pause' ? 'Paused.' : 'Resumed.';
}

/** @param {string} id @param {object} request */
export async function resync(id, request) {
  await api(`/connections/${id}/resync`, { method: 'POST', body: request });
  return 'Sync started.';
}
