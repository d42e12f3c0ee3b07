/** The pages of connect and sign-in: no scripts, nothing from other sites, readable on a phone. */

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (c) => escapes[c]!);

const style = `
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #f4f5f7; --card: #fff; --line: #e1e4e8; --go: #1f5fd6; --good: #12794a; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebef; --soft: #a3adba; --paper: #14181d; --card: #1d232a; --line: #303842; --go: #7aa7ff; --good: #5ccf98; --bad: #ff8f86 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; grid-template-columns: minmax(0, 1fr); place-items: center; padding: 1.5rem; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { width: min(30rem, 100%); background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: min(2.25rem, 7vw); overflow-wrap: anywhere }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .75rem }
p { margin: 0 0 .9rem; color: var(--soft) } p strong { color: var(--ink) }
a { color: var(--go) }
a.button { display: inline-block; margin-top: .5rem; padding: .6rem 1.15rem; border-radius: 8px; background: var(--go); color: var(--card); text-decoration: none; font-weight: 600 }
button { margin-top: 1rem; padding: .6rem 1.15rem; border: 0; border-radius: 8px; background: var(--go); color: var(--card); font: inherit; font-weight: 600; cursor: pointer }
label { display: block; font-weight: 600; margin-bottom: .35rem }
input { width: 100%; padding: .55rem .7rem; border: 1px solid var(--soft); border-radius: 8px; background: var(--paper); color: var(--ink); font: inherit }
.error { color: var(--bad); font-weight: 600 }
a.button:focus-visible, button:focus-visible, input:focus-visible { outline: 3px solid var(--go); outline-offset: 3px }
.back { margin-top: 1.1rem }
details { margin-top: 1.5rem } summary { cursor: pointer; color: var(--soft) } details p { margin-top: .9rem }
.mark { width: 2.5rem; height: 2.5rem; border-radius: 50%; display: grid; place-items: center; margin-bottom: 1.1rem; color: var(--card); font-weight: 700; background: var(--go) }
.good .mark { background: var(--good) } .bad .mark { background: var(--bad) }
footer { margin-top: 1.75rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .85rem; color: var(--soft) }`;

/** The browser may only show the page. */
export const pageHeaders = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** Headers of a page with a form: the browser may send the form to this service, with an Origin. */
export const formPageHeaders = {
  ...pageHeaders,
  'content-security-policy': pageHeaders['content-security-policy'].replace("form-action 'none'", "form-action 'self'"),
  'referrer-policy': 'same-origin',
};

/** A page with one message. `paragraphs` are plain text; `action` is a link to continue. */
export function page(content: {
  tone: 'good' | 'bad' | 'plain';
  title: string;
  paragraphs: string[];
  action?: { href: string; label: string };
  /** Sends an empty form. */
  button?: { action: string; label: string };
  /** A link to the site that the user came from. */
  back?: { href: string; label: string };
  /** The browser follows `back` at once. */
  leavesAtOnce?: boolean;
}): string {
  const { title, tone, paragraphs, action, button, back, leavesAtOnce } = content;
  // Not a redirect: the CSP form-action of the library's consent page may block one to a third site after its form is sent.
  const head =
    back && leavesAtOnce ? `<meta http-equiv="refresh" content="0;url=${escapeHtml(back.href)}">` : undefined;
  const parts = [
    ...paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`),
    action ? `<a class="button" href="${escapeHtml(action.href)}">${escapeHtml(action.label)}</a>` : '',
    button
      ? `<form method="post" action="${escapeHtml(button.action)}"><button>${escapeHtml(button.label)}</button></form>`
      : '',
    back ? `<p class="back"><a href="${escapeHtml(back.href)}">${escapeHtml(back.label)}</a></p>` : '',
  ];
  return frame(title, tone, parts, head);
}

/** A page: a title, and parts that are HTML. */
export function frame(title: string, tone: 'good' | 'bad' | 'plain', parts: string[], head = ''): string {
  const mark = { good: '✓', bad: '!', plain: '↻' }[tone];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} · asset-mirror</title>
${head}
<style>${style}</style>
</head>
<body>
<main class="${tone}">
<div class="mark" aria-hidden="true">${mark}</div>
<h1>${escapeHtml(title)}</h1>
${parts.filter(Boolean).join('\n')}
<footer>asset-mirror keeps a verified copy of your media library.</footer>
</main>
</body>
</html>
`;
}
