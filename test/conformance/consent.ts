import { createServer } from 'node:http';
import type { Arrival, Browser } from './browser.ts';
import { NotTried } from './check.ts';
import { boxesOf, buttonOf, type Element, elements, fieldsOf, labelOf, linkOf, type Page, typeOf } from './html.ts';

const ALLOW = /\b(allow|approve|authori[sz]e|accept|grant|agree|confirm)\b/i;
const CANCEL = /\b(cancel|deny|decline|reject|refuse|not now|don.t allow)\b/i;

export type Decision = {
  decision: 'allow' | 'cancel';
  /** Ids or names of the companies to share. Default: as the page proposes. */
  companies?: string[];
};

export type Person = { email: string; password: string; browser: Browser };

/** The pages that a user saw between the authorize endpoint and the app, and where it ended. */
export type Walk = Arrival & { pages: Page[] };

/** Signs in and decides, with any forms of the service. Ends at a page that is neither sign-in nor consent. */
export async function walk(url: string, redirectUri: string, person: Person, wanted: Decision): Promise<Walk> {
  const { browser, email, password } = person;
  const pages: Page[] = [];
  let arrival = await browser.open(url, redirectUri);
  for (let steps = 0; steps < 10 && arrival.page; steps++) {
    const { page } = arrival;
    const signedInBefore = pages.some(hasPassword);
    pages.push(page);
    if (hasPassword(page)) {
      if (signedInBefore) throw new Error(`${new URL(page.url).origin} does not take the password of ${email}`);
      const form = formOf(page, isPassword)!;
      arrival = await browser.submit(page, form, filled(form, email, password), redirectUri);
      continue;
    }
    const next = decided(page, wanted);
    const asksForEmail = formOf(page, isEmail);
    if (next) {
      arrival = await (next.form
        ? browser.submit(page, next.form, next.fields, redirectUri)
        : browser.open(next.link, redirectUri));
    } else if (asksForEmail) {
      arrival = await browser.submit(page, asksForEmail, filled(asksForEmail, email, password), redirectUri);
    } else break;
  }
  return { ...arrival, pages };
}

const isPassword = (field: Element) => typeOf(field) === 'password';
const isEmail = (field: Element) =>
  typeOf(field) === 'email' ||
  (typeOf(field) === 'text' && /^(e-?mail|user(name)?|login)$/i.test(field.attribs.name ?? '')) ||
  field.attribs.autocomplete === 'username';

function hasPassword(page: Page): boolean {
  return formOf(page, isPassword) !== undefined;
}

export function isSignIn(page: Page): boolean {
  return page.status < 500 && (hasPassword(page) || formOf(page, isEmail) !== undefined);
}

export function isConsent(page: Page): boolean {
  return !isSignIn(page) && buttonOf(page, ALLOW) !== undefined;
}

function formOf({ document }: Page, has: (field: Element) => boolean): Element | undefined {
  return elements(document, 'form').find((form) => elements(form, 'input').some(has));
}

function filled(form: Element, email: string, password: string): [string, string][] {
  const nameOf = (is: (field: Element) => boolean) => elements(form, 'input').find(is)?.attribs.name;
  const names = { email: nameOf(isEmail), password: nameOf(isPassword) };
  return fieldsOf(form).map(([name, value]) =>
    name === names.email ? [name, email] : name === names.password ? [name, password] : [name, value],
  );
}

type Step = { form: Element; fields: [string, string][] } | { form?: undefined; link: string };

function decided(page: Page, { decision, companies }: Decision): Step | undefined {
  const words = decision === 'allow' ? ALLOW : CANCEL;
  const button = buttonOf(page, words);
  if (!button) {
    const link = decision === 'cancel' ? linkOf(page, words) : undefined;
    return link === undefined ? undefined : { link };
  }
  const boxes = boxesOf(button.form);
  const isTicked = boxes.some(({ attribs }) => attribs.checked !== undefined);
  for (const box of boxes) {
    const isWanted = companies ? companies.some((company) => isOf(box, company)) : isTicked ? undefined : true;
    if (isWanted === true) box.attribs.checked = '';
    if (isWanted === false) delete box.attribs.checked;
  }
  return { form: button.form, fields: [...fieldsOf(button.form), ...button.field] };
}

function isOf(box: Element, company: string): boolean {
  return box.attribs.value === company || labelOf(box).includes(company);
}

/** Asks the user at the terminal to open a browser, and waits at the redirect URI. */
export async function walkByHand(url: string, redirectUri: string, wanted: string, timeout: number): Promise<URL> {
  const { hostname, port, protocol } = new URL(redirectUri);
  if (protocol !== 'http:' || !/^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname)) {
    throw new NotTried(`by hand takes a redirect URI on this machine, as http://localhost:8080/callback`);
  }
  const { promise, resolve } = Promise.withResolvers<URL>();
  const server = createServer((request, response) => {
    const address = new URL(request.url!, redirectUri);
    response.setHeader('content-type', 'text/plain').end('Thank you. The rest happens in the terminal.\n');
    if (address.pathname === new URL(redirectUri).pathname) resolve(address);
  });
  const host = hostname === '[::1]' ? '::1' : hostname;
  await new Promise<void>((listening, failed) => {
    server.once('error', failed).listen(Number(port || 80), host, listening);
  });
  process.stderr.write(`\n  Please open this address and ${wanted}:\n  ${url}\n`);
  const timer = setTimeout(() => resolve(new URL('about:blank')), timeout);
  try {
    const landed = await promise;
    if (landed.protocol === 'about:') throw new NotTried('no browser returned to the redirect URI in time');
    return landed;
  } finally {
    clearTimeout(timer);
    server.closeAllConnections();
    server.close();
  }
}
