import { type HTMLElement, parse } from 'node-html-parser';
import type { Send, Sending } from './http.ts';

export type Page = { url: string; status: number; document: HTMLElement; text: string; html: string };

/** Where a walk ended: at the app's redirect URI, which is not asked for anything, or at a page. */
export type Arrival = { landed: URL; page?: undefined } | { landed?: undefined; page: Page };

export type Browser = ReturnType<typeof createBrowser>;

/** What a browser does with cookies, redirects and forms when JavaScript is off. */
export function createBrowser(send: Send) {
  const jars = new Map<string, Map<string, string>>();

  async function load(url: string, redirectUri: string | undefined, sending: Sending = {}): Promise<Arrival> {
    for (let hops = 0; hops < 15; hops++) {
      if (redirectUri !== undefined && isAt(url, redirectUri)) return { landed: new URL(url) };
      const { host } = new URL(url);
      const jar = jars.get(host) ?? new Map<string, string>();
      jars.set(host, jar);
      const cookie = [...jar].map((pair) => pair.join('=')).join('; ');
      const headers = { accept: 'text/html,*/*;q=0.8', ...(cookie && { cookie }) };
      const answer = await send(url, { ...sending, headers });
      for (const line of answer.cookies) keep(jar, line);
      const location = answer.status >= 300 && answer.status < 400 ? answer.header('location') : undefined;
      if (location === undefined) {
        const document = parse(answer.text);
        return {
          page: {
            url,
            status: answer.status,
            document,
            text: (document.querySelector('body') ?? document).structuredText,
            html: answer.text,
          },
        };
      }
      url = new URL(location, url).href;
      sending = {};
    }
    throw new Error(`redirects without end at ${new URL(url).origin}`);
  }

  return {
    open: (url: string, redirectUri?: string) => load(url, redirectUri),
    submit(page: Page, form: HTMLElement, fields: [string, string][], redirectUri?: string): Promise<Arrival> {
      const action = new URL(form.getAttribute('action') || page.url, page.url);
      const values = new URLSearchParams(fields);
      if (form.getAttribute('method')?.toLowerCase() === 'post') {
        return load(action.href, redirectUri, { method: 'POST', body: values });
      }
      action.search = values.toString();
      return load(action.href, redirectUri);
    },
  };
}

/** The registered address itself, with an answer in its query. */
function isAt(url: string, redirectUri: string): boolean {
  return url === redirectUri || url.startsWith(`${redirectUri}${redirectUri.includes('?') ? '&' : '?'}`);
}

function keep(jar: Map<string, string>, line: string): void {
  const [pair = '', ...attributes] = line.split(';');
  const [name = '', value = ''] = pair.trim().split(/=(.*)/s);
  if (attributes.some((attribute) => /^\s*(max-age=0|expires=thu, 01 jan 1970)/i.test(attribute))) jar.delete(name);
  else jar.set(name, value);
}

/** What a form sends by itself: its hidden fields, what is filled in and ticked beforehand. */
export function fieldsOf(form: HTMLElement): [string, string][] {
  return form.querySelectorAll('input, select, textarea').flatMap((field): [string, string][] => {
    const name = field.getAttribute('name');
    const type = field.getAttribute('type')?.toLowerCase() ?? 'text';
    if (!name || field.hasAttribute('disabled') || /^(submit|button|image|reset|file)$/.test(type)) return [];
    if (/^(checkbox|radio)$/.test(type)) {
      return field.hasAttribute('checked') ? [[name, field.getAttribute('value') ?? 'on']] : [];
    }
    if (field.tagName === 'TEXTAREA') return [[name, field.text]];
    if (field.tagName === 'SELECT') {
      const option = field.querySelector('option[selected]') ?? field.querySelector('option');
      return option ? [[name, option.getAttribute('value') ?? option.text]] : [];
    }
    return [[name, field.getAttribute('value') ?? '']];
  });
}

/** A form and its button with these words on it. */
export function buttonOf(page: Page, words: RegExp): { form: HTMLElement; field: [string, string][] } | undefined {
  for (const form of page.document.querySelectorAll('form')) {
    for (const button of form.querySelectorAll('button, input[type=submit]')) {
      const label = button.tagName === 'INPUT' ? (button.getAttribute('value') ?? '') : button.text;
      if (!words.test(label.trim())) continue;
      const name = button.getAttribute('name');
      return { form, field: name ? [[name, button.getAttribute('value') ?? '']] : [] };
    }
  }
  return undefined;
}

export function linkOf(page: Page, words: RegExp): string | undefined {
  const link = page.document.querySelectorAll('a[href]').find(({ text }) => words.test(text.trim()));
  return link && new URL(link.getAttribute('href')!, page.url).href;
}
