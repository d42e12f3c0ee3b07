import type { Company, Registration, User } from '../model.ts';
import { Html, html } from './html.ts';
import type { Page } from './layout.ts';

const FOCUS = new Html(' autofocus');
const CHECKED = new Html(' checked');

type SignIn = {
  csrf: string;
  /** The path to go to after the sign-in. */
  next: string;
  email: string | undefined;
  problem: string | undefined;
  /** The name of the app that asks for access. */
  app: string | undefined;
};

export function signInPage(form: SignIn): Page {
  return {
    title: 'Sign in',
    content: html`<div class="card">
<h1>Sign in</h1>
<p class="soft">${form.app ? html`to continue to <strong>${form.app}</strong>` : 'to your asset library'}</p>
${form.problem && html`<p class="note" role="alert">${form.problem}</p>`}
<form method="post" action="/sign-in">
<input type="hidden" name="csrf" value="${form.csrf}">
<input type="hidden" name="next" value="${form.next}">
<label class="field">Email address
<input type="email" name="email" value="${form.email}" autocomplete="username" required${!form.email && FOCUS}></label>
<label class="field">Password
<input type="password" name="password" autocomplete="current-password" required${form.email && FOCUS}></label>
<button class="main full">Sign in</button>
</form>
</div>`,
  };
}

type Consent = {
  registration: Registration;
  user: User;
  companies: Company[];
  redirectUri: string;
  action: string;
  csrf: string;
  problem: string | undefined;
};

export function consentPage({ registration, user, companies, redirectUri, action, csrf, problem }: Consent): Page {
  // All are checked at first. A problem means that none was.
  const checked = problem === undefined && CHECKED;
  const choices = companies.map(
    ({ id, name }) => html`<label class="choice"><input type="checkbox" name="company" value="${id}"${checked}>
<span>${name}</span></label>`,
  );
  return {
    title: `Connect ${registration.name}`,
    pictures: logos([registration]),
    formTarget: redirectUri,
    corner: signOutForm(csrf),
    content: html`<div class="card">
<div class="pair">${logo(registration)}<div><h1>${registration.name} would like to read your assets</h1></div></div>
${problem && html`<p class="note" role="alert">${problem}</p>`}
<p>Signed in as <strong>${user.name}</strong> <span class="soft">(${user.email})</span>.</p>
<form method="post" action="${action}">
<input type="hidden" name="csrf" value="${csrf}">
${
  companies.length > 0
    ? html`<fieldset><legend>Companies to share</legend>${choices}</fieldset>`
    : html`<p class="note">You are not a member of any company yet, so there is nothing to share.</p>`
}
<p class="small soft">${registration.name} will be able to</p>
<ul class="can small"><li>see your name and email address</li><li>see projects, assets and transcripts</li>
<li>download files</li></ul>
<p class="small soft">It cannot change anything. You can disconnect it at any time in your profile.
You will return to <strong>${new URL(redirectUri).host}</strong>.</p>
<div class="actions">
<button name="decision" value="cancel">Cancel</button>
${companies.length > 0 && html`<button class="main" name="decision" value="allow">Allow access</button>`}
</div>
</form>
</div>`,
  };
}

export type ConnectedApp = { registration: Registration; since: number; companies: Company[] };

export function profilePage(user: User, companies: Company[], apps: ConnectedApp[], csrf: string): Page {
  const rows = apps.map(
    ({ registration, since, companies }) => html`<div class="row">${logo(registration)}<div>
<strong>${registration.name}</strong>
<div class="small soft">Connected since ${day(since)} · reads ${names(companies)} ·
<a href="${registration.websiteUrl}" rel="noreferrer noopener">website</a></div></div>
<form method="post" action="/profile/disconnect"><input type="hidden" name="csrf" value="${csrf}">
<input type="hidden" name="client" value="${registration.clientId}">
<button class="warn">Disconnect</button></form></div>`,
  );
  return {
    title: 'Profile',
    wide: true,
    pictures: logos(apps.map(({ registration }) => registration)),
    corner: signOutForm(csrf),
    content: html`<div class="card">
<h1>${user.name}</h1>
<p class="soft">${user.email}</p>
<p>Member of ${names(companies)}.</p>
<h2>Connected apps</h2>
<p class="small soft">These apps can read your companies' assets. A disconnected app loses access at once.</p>
${apps.length > 0 ? rows : html`<p>No app is connected.</p>`}
</div>`,
  };
}

export function problemPage(status: number, title: string, message: string): Page {
  return {
    title,
    status,
    content: html`<div class="card"><h1>${title}</h1><p class="soft">${message}</p>
<p><a href="/profile">Go to your profile</a></p></div>`,
  };
}

function signOutForm(csrf: string): Html {
  return html`<form method="post" action="/sign-out"><input type="hidden" name="csrf" value="${csrf}">
<button>Sign out</button></form>`;
}

/** The logo comes from the app's server, which does not get the address of the page. */
function logo({ logoUrl, name }: Registration): Html {
  return logoUrl
    ? html`<img class="logo" src="${logoUrl}" alt="" referrerpolicy="no-referrer">`
    : html`<div class="logo" aria-hidden="true">${[...name][0]}</div>`;
}

function logos(registrations: Registration[]): string[] {
  return registrations.flatMap(({ logoUrl }) => logoUrl ?? []);
}

function names(companies: Company[]): string {
  return companies.length === 0
    ? 'no company'
    : new Intl.ListFormat('en').format(companies.map((company) => company.name));
}

function day(time: number): string {
  return new Intl.DateTimeFormat('en', { dateStyle: 'long', timeZone: 'UTC' }).format(time);
}
