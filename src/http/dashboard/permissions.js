/** @import { Me } from './types.d.ts' */
import { api } from './api.js';
import { draw, state } from './state.js';
import { html, nothing } from './vendor/lit-html/lit-html.js';

/** Reads who is signed in, and what that operator may do. */
export async function readMe() {
  state.me = await api('/me');
  draw();
}

/** @param {string} operation of the API */
export const may = (operation) => state.me?.may.includes(operation) ?? false;

/** The content for operators who may do this, and nothing for others. @param {string} operation @param {() => unknown} content */
export const ifMay = (operation, content) => (may(operation) ? content() : nothing);

/**
 * Lists the roles that may take the actions that this operator may not take, and who has these roles.
 * @param {Record<string, string>} actions the operation of each: `{ Disconnect: 'disconnectConnection' }`
 */
export function rolesNeeded(actions) {
  const { me } = state;
  if (!me) return nothing;
  /** @type {Map<Me['role'], string[]>} */
  const byRole = new Map();
  for (const [action, operation] of Object.entries(actions)) {
    const role = me.needs[operation];
    if (role) byRole.set(role, [...(byRole.get(role) ?? []), action]);
  }
  return [...byRole].map(
    ([role, words]) =>
      html`<p class="soft small">${words.join(', ')}: only with the role ${role}${grantsOf(me, role)}.</p>`,
  );
}

/** @param {Me} me @param {Me['role']} role */
const grantsOf = ({ grants }, role) => {
  const values = grants[role] ?? [];
  return values.length > 0 ? ` (${values.join(', ')})` : '';
};
