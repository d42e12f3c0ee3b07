import { createHash } from 'node:crypto';
import type { FastifyReply } from 'fastify';
import { Html, html } from './html.ts';

const STYLE = `
:root { color-scheme: light dark; --ink: #16211d; --soft: #5c6b65; --line: #dbe2de; --paper: #fff; --ground: #eef2ef;
  --accent: #12694f; --accent-ink: #fff; --warn: #a3341f; --warn-ground: #fdeeea; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ece9; --soft: #9caaa4; --line: #33403b; --paper: #1a2320;
  --ground: #101614; --accent: #4fc39c; --accent-ink: #07130e; --warn: #ff9d88; --warn-ground: #3a1e18; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; grid-template-rows: auto 1fr auto; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
header, footer { padding: .9rem 1.5rem; display: flex; align-items: center; gap: .6rem; color: var(--soft); }
header { color: var(--ink); font-weight: 600; }
header form { margin-left: auto; }
header button { padding: .35rem .8rem; font-size: .9rem; }
header svg { color: var(--accent); }
footer { font-size: .85rem; justify-content: center; }
main { width: min(30rem, calc(100vw - 2rem)); margin: .5rem auto 2rem; align-self: center; }
main.wide { width: min(44rem, calc(100vw - 2rem)); align-self: start; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 14px; padding: 2rem;
  box-shadow: 0 1px 2px rgb(0 0 0 / .04), 0 12px 32px rgb(0 0 0 / .06); overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.05rem; margin: 2rem 0 .75rem; }
p { margin: 0 0 1rem; }
.soft { color: var(--soft); }
.small { font-size: .875rem; }
.note { background: var(--warn-ground); color: var(--warn); border-radius: 8px; padding: .7rem .9rem; margin: 0 0 1rem; }
label.field { display: block; font-weight: 600; font-size: .9rem; margin: 0 0 1rem; }
input[type=email], input[type=password] { display: block; width: 100%; margin-top: .3rem; padding: .65rem .8rem;
  font: inherit; font-weight: 400; color: inherit; background: var(--paper); border: 1px solid var(--soft); border-radius: 8px; }
input:focus-visible, button:focus-visible, a:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
button { font: inherit; font-weight: 600; padding: .65rem 1.1rem; border-radius: 8px; cursor: pointer;
  border: 1px solid var(--line); background: transparent; color: var(--ink); white-space: nowrap; }
button.main { background: var(--accent); border-color: var(--accent); color: var(--accent-ink); }
button.full { width: 100%; }
button.warn { color: var(--warn); }
.actions { display: flex; gap: .75rem; margin-top: 1.5rem; }
.actions button { flex: 1; }
.pair { display: flex; align-items: center; gap: 1rem; margin-bottom: 1.25rem; }
.logo { width: 56px; height: 56px; border-radius: 12px; border: 1px solid var(--line); object-fit: cover; flex: none;
  display: grid; place-items: center; font-weight: 700; font-size: 1.4rem; background: var(--ground); color: var(--accent); }
fieldset { border: 1px solid var(--line); border-radius: 10px; padding: .25rem 1rem; margin: 0 0 1rem; }
legend { padding: 0 .4rem; font-size: .85rem; color: var(--soft); }
.choice { display: flex; align-items: center; gap: .75rem; padding: .6rem 0; }
.choice + .choice { border-top: 1px solid var(--line); }
.choice input { flex: none; width: 1.15rem; height: 1.15rem; accent-color: var(--accent); }
ul.can { margin: 0 0 1rem; padding-left: 1.2rem; }
.row { display: flex; flex-wrap: wrap; align-items: center; gap: 1rem; padding: 1rem 0; border-top: 1px solid var(--line); }
.row > div:not(.logo) { flex: 1 1 12rem; }
a { color: var(--accent); }
@media (max-width: 24rem) { .card { padding: 1.25rem; } .actions { flex-direction: column-reverse; } }
`;

const STYLE_HASH = createHash('sha256').update(STYLE).digest('base64');

const MARK = html`<svg width="24" height="24" viewBox="0 0 24 24" aria-hidden="true" fill="currentColor">
<rect x="2" y="4" width="5" height="16" rx="1.5"/>
<rect x="9" y="4" width="5" height="16" rx="1.5" opacity=".65"/>
<rect x="15.6" y="4.6" width="5" height="16" rx="1.5" opacity=".4" transform="rotate(-12 18 12)"/></svg>`;

export type Page = {
  title: string;
  content: Html;
  /** Shown at the right of the header. */
  corner?: Html;
  wide?: boolean;
  status?: number;
  /** The address of another site that a form of this page may lead to. */
  formTarget?: string;
  /** The addresses of pictures from other sites. */
  pictures?: string[];
};

/** Sends a page without scripts that cannot be framed or cached. Other sites do not learn its address. */
export function sendPage(reply: FastifyReply, page: Page): FastifyReply {
  const policy = [
    "default-src 'none'",
    `style-src 'sha256-${STYLE_HASH}'`,
    `img-src ${page.pictures?.map(originOf).join(' ') || "'none'"}`,
    // Browsers apply this also to the redirect that answers a form, as on the consent page.
    `form-action 'self'${page.formTarget ? ` ${originOf(page.formTarget)}` : ''}`,
    "frame-ancestors 'none'",
    "base-uri 'none'",
  ];
  return reply
    .code(page.status ?? 200)
    .headers({
      'content-security-policy': policy.join('; '),
      'x-frame-options': 'DENY',
      'referrer-policy': 'same-origin',
      'cache-control': 'no-store',
    })
    .type('text/html; charset=utf-8')
    .send(documentOf(page).text);
}

function documentOf({ title, content, corner, wide }: Page): Html {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} · Asset Library</title>
<style>${new Html(STYLE)}</style>
</head>
<body>
<header>${MARK} Asset Library ${corner}</header>
<main${wide && new Html(' class="wide"')}>
${content}
</main>
<footer>Your company's media in one place</footer>
</body>
</html>
`;
}

function originOf(address: string): string {
  return new URL(address).origin;
}
