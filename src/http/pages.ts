/** The few pages that people who connect see: no script, nothing from elsewhere, readable on a phone. */

const escapes: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

/** Text as HTML. */
export const escapeHtml = (text: string): string => text.replace(/[&<>"']/g, (c) => escapes[c]!);

const style = `
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --paper: #f4f5f7; --card: #fff; --line: #e1e4e8; --go: #1f5fd6; --good: #12794a; --bad: #b3261e }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebef; --soft: #a3adba; --paper: #14181d; --card: #1d232a; --line: #303842; --go: #7aa7ff; --good: #5ccf98; --bad: #ff8f86 } }
* { box-sizing: border-box }
body { margin: 0; min-height: 100vh; display: grid; grid-template-columns: minmax(0, 1fr); place-items: center; padding: 1.5rem; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif }
main { width: min(30rem, 100%); background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: min(2.25rem, 7vw); overflow-wrap: anywhere }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 .75rem }
p { margin: 0 0 .9rem; color: var(--soft) } p strong { color: var(--ink) }
a.button { display: inline-block; margin-top: .5rem; padding: .6rem 1.15rem; border-radius: 8px; background: var(--go); color: var(--card); text-decoration: none; font-weight: 600 }
a.button:focus-visible { outline: 3px solid var(--go); outline-offset: 3px }
.mark { width: 2.5rem; height: 2.5rem; border-radius: 50%; display: grid; place-items: center; margin-bottom: 1.1rem; color: var(--card); font-weight: 700; background: var(--go) }
.good .mark { background: var(--good) } .bad .mark { background: var(--bad) }
footer { margin-top: 1.75rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: .85rem; color: var(--soft) }`;

/** What a browser may do with such a page: nothing but show it. */
export const pageHeaders = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** A page with one message. `paragraphs` are plain text; `action` is where to go on. */
export function page(content: {
  tone: 'good' | 'bad' | 'plain';
  title: string;
  paragraphs: string[];
  action?: { href: string; label: string };
}): string {
  const mark = { good: '✓', bad: '!', plain: '↻' }[content.tone];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(content.title)} · asset-mirror</title>
<style>${style}</style>
</head>
<body>
<main class="${content.tone}">
<div class="mark" aria-hidden="true">${mark}</div>
<h1>${escapeHtml(content.title)}</h1>
${content.paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`).join('\n')}
${content.action ? `<a class="button" href="${escapeHtml(content.action.href)}">${escapeHtml(content.action.label)}</a>` : ''}
<footer>asset-mirror keeps a verified copy of your media library.</footer>
</main>
</body>
</html>
`;
}
