import { Failure, NotTried } from '../check.ts';
import { isSignIn, type Person } from '../consent.ts';
import { type Button, buttonOf, buttonsOf, elements, fieldsOf, rowOf, textOf } from '../html.ts';
import type { World } from '../world.ts';

const DISCONNECT = /\b(disconnect|remove|revoke)\b/i;
const CONFIRM = /\b(disconnect|remove|revoke|confirm|yes)\b/i;

/** Disconnects the tested app, and no other, on the profile page. */
export async function disconnectInProfile(world: World, { browser }: Person): Promise<void> {
  const { app, profile, appName } = world.options;
  const { page } = await browser.open(app + profile);
  if (!page || page.status >= 400 || isSignIn(page)) {
    throw new NotTried(`there is no profile page at ${profile}; --profile says where`);
  }
  const forms = elements(page.document, 'form').filter((form) => buttonsOf(form).some(isDisconnect));
  if (forms.length === 0) throw new Failure('a form that disconnects the app', page.text.slice(0, 300));
  if (appName === undefined && !world.admin) throw new NotTried('needs --app-name, not to disconnect another app');
  const form = forms.find((form) => appName === undefined || textOf(rowOf(form, forms)).includes(appName));
  if (!form) throw new Failure(`a form that disconnects ${appName}`, page.text.slice(0, 300));
  const { field } = buttonsOf(form).find(isDisconnect)!;
  const { page: after } = await browser.submit(page, form, [...fieldsOf(form), ...field]);
  const isDone = !after || after.url.split('?')[0] === page.url.split('?')[0];
  const confirm = isDone ? undefined : buttonOf(after, CONFIRM);
  if (confirm) await browser.submit(after!, confirm.form, [...fieldsOf(confirm.form), ...confirm.field]);
}

function isDisconnect({ label }: Button): boolean {
  return DISCONNECT.test(label);
}
