/**
 * Where somebody goes on who was at something that is gone: at the heading of its part of the page, or of the page.
 * @param {Element | null} [section]
 */
export function comeBack(section) {
  const main = /** @type {HTMLElement} */ (document.getElementById('main'));
  const heading = (section?.isConnected ? section : main).querySelector('h1, h2');
  if (!(heading instanceof HTMLElement)) return main.focus({ preventScroll: true });
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}
