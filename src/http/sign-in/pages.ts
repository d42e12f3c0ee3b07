import { escapeHtml, frame } from '../pages.ts';

export interface SignInPage {
  /** The path of PUBLIC_URL. */
  base: string;
  /** The page after the sign-in. */
  to: string;
  error: string | undefined;
  /** The host of the OpenID provider. */
  provider: string | undefined;
  /** Whether ADMIN_TOKEN opens the dashboard. */
  withToken: boolean;
}

/** Leads to the provider, or asks for the token. */
export function signInPage({ base, to, error, provider, withToken }: SignInPage): string {
  const isOnly = provider === undefined;
  const form = withToken ? tokenForm({ base, to, isOnly, isWrong: isOnly && error !== undefined }) : '';
  return frame('Sign in', error === undefined ? 'plain' : 'bad', [
    error === undefined ? '' : `<p class="error" id="error" role="alert">${escapeHtml(error)}</p>`,
    provider === undefined
      ? ''
      : `<p><a class="button" href="${escapeHtml(`${base}/sign-in/provider?to=${encodeURIComponent(to)}`)}">Sign in with ${escapeHtml(provider)}</a></p>`,
    isOnly || !withToken ? form : `<details><summary>Use the admin token</summary>${form}</details>`,
  ]);
}

interface TokenForm {
  base: string;
  to: string;
  /** There is no other way to sign in. */
  isOnly: boolean;
  isWrong: boolean;
}

/** Without an action, the browser keeps the part of the address that names the view. The provider's error pages need one: they take no form. */
const tokenForm = ({ base, to, isOnly, isWrong }: TokenForm) => `
<p>Use the admin token: ADMIN_TOKEN, or the one that was printed at the first start and is in DATA_DIR/admin-token.</p>
<form method="post"${isOnly ? '' : ` action="${escapeHtml(base)}/sign-in"`}>
<input type="hidden" name="to" value="${escapeHtml(to)}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required${
  isOnly ? ' autofocus' : ''
}${isWrong ? ' aria-invalid="true" aria-describedby="error"' : ''}>
<button>Sign in</button>
</form>`;

/** The browser continues at the provider at once. */
export const signOutPage = (url: string, host: string) =>
  frame(
    'Signing out',
    'plain',
    [`<p>You are signed out here. <a href="${escapeHtml(url)}">Sign out at ${escapeHtml(host)}, too</a></p>`],
    `<meta http-equiv="refresh" content="0;url=${escapeHtml(url)}">`,
  );
