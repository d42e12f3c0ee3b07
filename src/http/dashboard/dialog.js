/** @import { TemplateResult } from './vendor/lit-html/lit-html.js' */
import { focusHeading } from './focus.js';
import { say } from './state.js';
import { html, nothing, render } from './vendor/lit-html/lit-html.js';

const dialog = /** @type {HTMLDialogElement} */ (document.getElementById('dialog'));
/** @type {AbortController} */
let ended = new AbortController();
dialog.addEventListener('close', () => {
  // Another dialog may have opened before this event.
  if (dialog.open) return;
  ended.abort();
  render(nothing, dialog);
  // The browser moves the focus back to the element that opened the dialog, which may no longer exist.
  if (document.activeElement === document.body) focusHeading();
});

const close = () => dialog.close();

/**
 * Opens a form. `send` returns the message about the result; an error is shown, and the form stays. `buttons`: additional ones.
 * @param {{ title: string, content: () => TemplateResult | TemplateResult[], label?: string, danger?: boolean,
 *   buttons?: () => TemplateResult | typeof nothing,
 *   send?: (form: FormData) => Promise<string | undefined>, then?: () => unknown }} form
 * @returns a function that shows it again after its content has changed
 */
export function openDialog({ title, content, label, danger = false, buttons, send, then = () => {} }) {
  ended.abort();
  ended = new AbortController();
  /** @type {string | undefined} */
  let error;
  let busy = false;
  const { signal } = ended;
  /** Another dialog may be open when an answer for this one arrives. */
  const show = () => {
    if (signal.aborted) return;
    render(
      html`<form method="dialog" @submit=${submit}>
        <h2 id="dialog-title">${title}</h2>
        ${content()}
        ${error ? html`<p class="banner bad" role="alert">${error}</p>` : nothing}
        <div class="buttons">
          <button type="button" class="quiet" @click=${close}>${send ? 'Cancel' : 'Close'}</button>
          ${send ? html`<button class=${danger ? 'danger' : 'main'} ?disabled=${busy}>${busy ? 'One moment …' : label}</button>` : nothing}
          ${busy ? nothing : buttons?.()}
        </div>
      </form>`,
      dialog,
    );
  };
  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    if (!send || busy) return;
    busy = true;
    error = undefined;
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target), event.submitter);
    show();
    try {
      const said = await send(form);
      busy = false;
      if (said !== undefined) {
        if (!signal.aborted) close();
        say(said);
      }
    } catch (problem) {
      busy = false;
      error = /** @type {Error} */ (problem).message;
    }
    if (dialog.open) show();
    then();
  }
  show();
  if (!dialog.open) dialog.showModal();
  return show;
}

/** Aborted when the open dialog closes. */
export const whileOpen = () => ended.signal;

/** @param {FormData} form @param {string} name */
export const textOf = (form, name) => String(form.get(name) ?? '').trim() || undefined;

/**
 * A read-only field with a button that copies it.
 * @param {string} label @param {string} value @param {() => void} changed shows the dialog again
 */
export function copyField(label, value, changed) {
  let word = 'Copy';
  const copy = async () => {
    /** @type {HTMLInputElement | null} */ (dialog.querySelector('#copied'))?.select();
    // Browsers have a clipboard for pages of https and localhost only; elsewhere the user copies what is selected.
    word = navigator.clipboard ? 'Copied' : 'Selected';
    await navigator.clipboard?.writeText(value).catch(() => {
      word = 'Selected';
    });
    changed();
  };
  return {
    field: () =>
      html`<label class="field">${label}<input id="copied" readonly .value=${value} @focus=${(/** @type {FocusEvent} */ event) => /** @type {HTMLInputElement} */ (event.target).select()}></label>`,
    button: () => html`<button type="button" class="main" @click=${copy}>${word}</button>`,
  };
}

/** Shows a new secret, once. @param {string} title @param {string} label @param {string} secret @param {unknown} use */
export function secretDialog(title, label, secret, use) {
  const field = copyField(label, secret, () => show());
  const show = openDialog({
    title,
    content: () => html`<p>${use} It is shown only now.</p>${field.field()}<p class="row">${field.button()}</p>`,
  });
}
