/** @import { Status } from './types.d.ts' */
import { queryOf } from './api.js';
import { number } from './format.js';
import { html } from './vendor/lit-html/lit-html.js';
import { stateNames, states } from './words.js';

/** A bar of the assets in each state. @param {Status['assets']['byState']} byState */
export function bar(byState) {
  const shown = states.filter((state) => state !== 'gone' && byState[state] > 0);
  const words = shown.map((state) => `${number(byState[state])} ${stateNames[state]?.toLowerCase()}`).join(', ');
  return html`<span class="bar" role="img" aria-label=${words || 'Nothing yet'}>${shown.map(
    (state) => html`<i class=${state} .style=${`flex-grow: ${byState[state]}`}></i>`,
  )}</span>`;
}

/** The number of assets in each state, as links to them. @param {Status['assets']['byState']} byState @param {string} [connectionId] */
export const legend = (byState, connectionId) =>
  states
    .filter((state) => byState[state] > 0)
    .map(
      (state) =>
        html`<li><a href="#/assets${queryOf({ state, connectionId })}"><i class=${state}></i>${stateNames[state]} <b>${number(byState[state])}</b></a></li>`,
    );
