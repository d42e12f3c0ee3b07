/**
 * Moves the focus from an element that no longer exists to the heading of its section, or of the page.
 * @param {Element | null} [section]
 */
export function focusHeading(section) {
  const main = /** @type {HTMLElement} */ (document.getElementById('main'));
  const heading = (section?.isConnected ? section : main).querySelector('h1, h2');
  if (!(heading instanceof HTMLElement)) return main.focus({ preventScroll: true });
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}
