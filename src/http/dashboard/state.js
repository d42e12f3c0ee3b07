/** @import { MirrorEvent, Status } from './types.d.ts' */

/** What all views see; `draw` shows it. */
export const state = {
  /** @type {Status | undefined} */
  status: undefined,
  /** The newest first. @type {MirrorEvent[]} */
  events: [],
};

/** @type {() => void} */
let show = () => {};
let asked = false;

/** @param {() => void} render */
export function onDraw(render) {
  show = render;
}

/** Shows what has changed, with the next frame. */
export function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    show();
  });
}

/**
 * Says a result, to the eye and to screen readers, for a while. What is said meanwhile stands below it.
 * @param {string} text @param {'plain' | 'bad'} [tone]
 */
export function say(text, tone = 'plain') {
  const notice = document.createElement('p');
  notice.textContent = text;
  notice.dataset.tone = tone;
  notices().append(notice);
  setTimeout(() => notice.remove(), 8000);
}

/** What was said about the page before. */
export const clearNotices = () => notices().replaceChildren();

const notices = () => /** @type {HTMLElement} */ (document.getElementById('said'));
