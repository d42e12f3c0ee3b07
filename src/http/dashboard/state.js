/** @import { Me, MirrorEvent, Status } from './types.d.ts' */

/** The data of all views; `draw` shows it. */
export const state = {
  /** @type {Status | undefined} */
  status: undefined,
  /** @type {Me | undefined} */
  me: undefined,
  /** The newest first. @type {MirrorEvent[]} */
  events: [],
};

/** @type {() => void} */
let show = () => {};
let isScheduled = false;

/** @param {() => void} render */
export function onDraw(render) {
  show = render;
}

/** Renders the page with the next frame. */
export function draw() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => {
    isScheduled = false;
    show();
  });
}

/**
 * Shows a message for a while, also for screen readers. Later messages appear below it.
 * @param {string} text @param {'plain' | 'bad'} [tone]
 */
export function say(text, tone = 'plain') {
  const notice = document.createElement('p');
  notice.textContent = text;
  notice.dataset.tone = tone;
  notices().append(notice);
  setTimeout(() => notice.remove(), 8000);
}

/** Removes the messages of the previous page. */
export const clearNotices = () => notices().replaceChildren();

const notices = () => /** @type {HTMLElement} */ (document.getElementById('said'));
