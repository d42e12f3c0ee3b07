/** @import { MirrorEvent } from '../types.d.ts' */
import { listOf } from '../lists.js';
import { eventList, listed } from '../parts.js';
import { html } from '../vendor/lit-html/lit-html.js';

/** @type {ReturnType<typeof listOf<MirrorEvent>>} */
const events = listOf('/events', 'events');

export const activity = {
  title: 'Activity',
  open: () => events.filter({}),
  refresh: () => events.refresh(),
  render: () => html`
    <section class="card" aria-labelledby="activity-title">
      <div class="head"><h1 id="activity-title" tabindex="-1">Activity</h1></div>
      ${listed(events, 6, eventList, 'No activity yet.', 'events')}
    </section>`,
};
