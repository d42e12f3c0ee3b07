import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import axe, { type AxeResults } from 'axe-core';
import { type Browser, launch, type Page } from 'puppeteer-core';

/** The path of an installed browser, if there is one. */
export const chromium = ['chromium', 'chromium-browser', 'google-chrome'].map(whereIs).find(Boolean);

/** Added to the names of tests that are skipped without a browser. If none may be skipped, it is an error. */
export const skipped = chromium ? '' : ' (skipped: chromium is not installed)';
if (!chromium && process.env.CI) throw new Error('chromium is not installed; CI must not skip its tests');

export function startChromium(): Promise<Browser> {
  return launch({
    executablePath: chromium!,
    timeout: 180_000,
    // Root may not use the sandbox; the pages are our own. Certificates of this machine have no authority.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--ignore-certificate-errors', '--lang=en'],
  });
}

/** The server of an app's developer, at an https address of this machine. */
export async function startHttps(type: string, content: string): Promise<{ url: string; server: Server }> {
  const directory = await mkdtemp(join(tmpdir(), 'certificate-'));
  const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
  const subject = ['-subj', '/CN=localhost', '-days', '2', '-nodes', '-newkey', 'rsa:2048'];
  await promisify(execFile)('openssl', ['req', '-x509', ...subject, '-keyout', key, '-out', cert]);
  const server = createServer({ key: await readFile(key), cert: await readFile(cert) }, (_request, response) =>
    response.setHeader('content-type', type).end(content),
  );
  await rm(directory, { recursive: true });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  return { url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

function whereIs(program: string): string | undefined {
  try {
    return execFileSync('which', [program], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
}

/** Elements that are wider than their container. */
const OUTSIDE = `[...document.querySelectorAll('main *, dialog[open] *')]
  .filter((it) => it.getBoundingClientRect().right > it.closest('main, dialog').getBoundingClientRect().right + 1 ||
    (it.closest('.card') && it.getBoundingClientRect().right > it.closest('.card').getBoundingClientRect().right + 1))
  .map((it) => it.tagName + ' ' + it.innerText)`;

/** How many sheets of paper (A4) it prints on. */
export const sheetsOf = (pdf: Uint8Array): number =>
  Buffer.from(pdf)
    .toString('latin1')
    .match(/\/Type\s*\/Page\b/g)!.length;

/** Problems of a page for users: elements that do not fit, are unreadable, or have no name. */
export async function flawsOf(page: Page): Promise<string[]> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate('axe.run()')) as AxeResults;
  const [wanted, available] = (await page.evaluate('[document.documentElement.scrollWidth, innerWidth]')) as number[];
  const outside = (await page.evaluate(OUTSIDE)) as string[];
  return [
    ...violations.flatMap(({ id, nodes }) =>
      nodes.map(({ target, failureSummary }) => `${id} ${target} ${failureSummary}`),
    ),
    ...outside.map((what) => `${what} sticks out of its box`),
    ...(wanted! > available! ? [`${wanted} px wide on a screen of ${available}`] : []),
  ];
}
