import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fastifyStatic from '@fastify/static';
import type { FastifyInstance } from 'fastify';
import { escapeHtml } from './pages.ts';

const here = join(import.meta.dirname, 'dashboard');
/** The folder of a package whose entry file is in a subfolder of it. */
const folderOf = (name: string) => dirname(dirname(fileURLToPath(import.meta.resolve(name))));

/** All parts come from this site, images and media from `files`. Nothing is inline; no page may show this one in a frame. */
const securityPolicy = (files: string) =>
  `default-src 'self'; img-src ${files}; media-src ${files}; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'`;

/** File names have no hash, so browsers revalidate each time (ETag). */
const cached = { cacheControl: false, etag: true, lastModified: true } as const;

/**
 * The dashboard: a page, and its scripts and styles, without a build. `base`: the path of PUBLIC_URL; `linkOrigin`: the
 * origin of links to files of assets.
 */
export async function dashboard(
  app: FastifyInstance,
  { base, version, linkOrigin }: { base: string; version: string; linkOrigin: () => Promise<string | undefined> },
) {
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers({ 'x-content-type-options': 'nosniff', 'referrer-policy': 'same-origin' });
  });
  const page = shell(base, version);
  app.get('/', { schema: { hide: true } }, async (_request, reply) => {
    const store = await linkOrigin();
    return reply
      .header('content-security-policy', securityPolicy(store === undefined ? "'self'" : `'self' ${store}`))
      .header('cache-control', 'no-store')
      .type('text/html; charset=utf-8')
      .send(page);
  });
  const folders = [
    { root: here, prefix: '/dashboard/' },
    { root: folderOf('lit-html'), prefix: '/dashboard/vendor/lit-html/' },
    { root: folderOf('uplot'), prefix: '/dashboard/vendor/uplot/' },
  ];
  for (const [i, { root, prefix }] of folders.entries()) {
    await app.register(fastifyStatic, {
      root,
      prefix,
      ...cached,
      index: false,
      decorateReply: i === 0,
      allowedPath: (path) => /\.(js|css|svg)$/.test(path),
      setHeaders: (reply) => {
        reply.header('cache-control', 'private, no-cache');
      },
    });
  }
}

/** The style sheets, in this order: the rules of later ones win. */
const styles = ['base', 'header', 'figures', 'controls', 'files', 'tables', 'dialogs', 'narrow-screens', 'assurance'];

const shell = (base: string, version: string) => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>asset-mirror</title>
<link rel="icon" href="${escapeHtml(base)}/dashboard/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${escapeHtml(base)}/dashboard/vendor/uplot/dist/uPlot.min.css">
${styles.map((name) => `<link rel="stylesheet" href="${escapeHtml(base)}/dashboard/styles/${name}.css">`).join('\n')}
<script type="module" src="${escapeHtml(base)}/dashboard/app.js"></script>
</head>
<body data-base="${escapeHtml(base)}" data-version="${escapeHtml(version)}">
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<a class="brand" href="#/"><svg viewBox="0 0 24 24" width="22" height="22" aria-hidden="true"><path d="M4 6.5 12 2l8 4.5v11L12 22l-8-4.5z" fill="currentColor" opacity=".22"/><path d="M8 9.5 12 7l4 2.5v5L12 17l-4-2.5z" fill="currentColor"/></svg>asset-mirror</a>
<nav aria-label="Main"><a href="#/" data-view="overview">Overview</a><a href="#/assets" data-view="assets">Assets</a><a href="#/verify" data-view="verify">Verify</a><a href="#/assurance" data-view="assurance">Assurance</a><a href="#/activity" data-view="activity">Activity</a><a href="#/webhooks" data-view="webhooks">Webhooks</a><a href="#/audit" data-view="audit" hidden>Audit</a><a href="${escapeHtml(base)}/queues/">Queues</a></nav>
<span id="live" class="live" data-state="waiting">Connecting</span>
<a id="me" class="me" href="#/access" data-view="access">Access</a>
<form method="post" action="${escapeHtml(base)}/sign-out"><button class="quiet">Sign out</button></form>
</header>
<div id="said" role="status" class="toasts" aria-live="polite"></div>
<main id="main" tabindex="-1"><div class="loading"><p>Loading …</p></div></main>
<dialog id="dialog" aria-labelledby="dialog-title"></dialog>
<noscript><p class="banner bad">The dashboard needs JavaScript. The command line (asset-mirror --help) can do everything, too.</p></noscript>
</body>
</html>
`;
