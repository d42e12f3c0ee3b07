import type { HTMLElement } from 'node-html-parser';
import { buttonOf, fieldsOf } from '../browser.ts';
import { Failure, NotTried } from '../check.ts';
import { isSignIn, type Person } from '../consent.ts';
import type { World } from '../world.ts';

const DISCONNECT = /\b(disconnect|remove|revoke)\b/i;
const CONFIRM = /\b(disconnect|remove|revoke|confirm|yes)\b/i;

/** Disconnects the app under examination on the profile page, as a person does, and never another. */
export async function disconnectInProfile(world: World, { browser }: Person): Promise<void> {
  const { app, profile, appName } = world.options;
  const { page } = await browser.open(app + profile);
  if (!page || page.status >= 400 || isSignIn(page)) {
    throw new NotTried(`there is no profile page at ${profile}; --profile says where`);
  }
  const forms = page.document.querySelectorAll('form').filter((form) => DISCONNECT.test(labelOf(form)));
  if (forms.length === 0) throw new Failure('a form that disconnects the app', page.text.trim().slice(0, 300));
  if (appName === undefined && !world.admin) throw new NotTried('needs --app-name, not to disconnect another app');
  const form = forms.find((form) => appName === undefined || rowOf(form, forms).text.includes(appName));
  if (!form) throw new Failure(`a form that disconnects ${appName}`, page.text.trim().slice(0, 300));
  const button = form.querySelector('button[name]');
  const pressed: [string, string][] = button
    ? [[button.getAttribute('name')!, button.getAttribute('value') ?? '']]
    : [];
  const { page: after } = await browser.submit(page, form, [...fieldsOf(form), ...pressed]);
  const isDone = !after || after.url.split('?')[0] === page.url.split('?')[0];
  const confirm = isDone ? undefined : buttonOf(after, CONFIRM);
  if (confirm) await browser.submit(after!, confirm.form, [...fieldsOf(confirm.form), ...confirm.field]);
}

function labelOf(form: HTMLElement): string {
  return form
    .querySelectorAll('button, input[type=submit]')
    .map((it) => `${it.text} ${it.getAttribute('value') ?? ''}`)
    .join(' ');
}

/** What belongs to one form of several: the largest part of the page that holds no other. */
function rowOf(form: HTMLElement, forms: HTMLElement[]): HTMLElement {
  let row = form;
  for (let holder: HTMLElement | null = form; holder; holder = holder.parentNode) {
    if (forms.some((other) => other !== form && isWithin(other, holder!))) break;
    row = holder;
  }
  return row;
}

function isWithin(node: HTMLElement, holder: HTMLElement): boolean {
  for (let at: HTMLElement | null = node; at; at = at.parentNode) if (at === holder) return true;
  return false;
}
