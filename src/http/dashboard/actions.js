/** @import { AssetSummary, Connection } from './types.d.ts' */
import { api } from './api.js';
import { counted } from './format.js';
import { say } from './state.js';

/**
 * Does it, says how that ended, and has the view look again.
 * @param {() => Promise<string>} deed
 * @param {() => unknown} [then]
 */
export async function act(deed, then = () => {}) {
  try {
    say(await deed());
  } catch (error) {
    say(/** @type {Error} */ (error).message, 'bad');
  }
  then();
}

/** @param {Pick<AssetSummary, 'id' | 'name'>} asset */
export async function retryAsset({ id, name }) {
  await api(`/assets/${encodeURIComponent(id)}/retry`, { method: 'POST' });
  return `${name ?? id} is tried again now.`;
}

/** @param {string} id */
export async function retryFailed(id) {
  const { retried } = await api(`/connections/${id}/retry-failed`, { method: 'POST' });
  return `${counted(retried, 'asset')} ${retried === 1 ? 'is' : 'are'} tried again now.`;
}

/** @param {Connection} connection @param {'pause' | 'resume'} verb */
export async function pauseOrResume({ id }, verb) {
  await api(`/connections/${id}/${verb}`, { method: 'POST' });
  return verb === 'pause' ? 'Paused. Nothing more is done until it is resumed.' : 'Resumed. It goes on where it was.';
}

/** @param {string} id @param {object} request */
export async function resync(id, request) {
  await api(`/connections/${id}/resync`, { method: 'POST', body: request });
  return 'The sync has been asked for.';
}
