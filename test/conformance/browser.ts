import { type Element, type Page, pageOf } from './html.ts';
import type { Send, Sending } from './http.ts';

/** Where navigation ended: at the app's redirect URI, which gets no request, or at a page. */
export type Arrival = { landed: URL; page?: undefined } | { landed?: undefined; page: Page };

export type Browser = ReturnType<typeof createBrowser>;

/** A browser without JavaScript: cookies, redirects and forms. */
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
        return { page: pageOf(url, answer.status, answer.text) };
      }
      url = new URL(location, url).href;
      sending = {};
    }
    throw new Error(`redirects without end at ${new URL(url).origin}`);
  }

  return {
    open: (url: string, redirectUri?: string) => load(url, redirectUri),
    submit(page: Page, form: Element, fields: [string, string][], redirectUri?: string): Promise<Arrival> {
      const action = new URL(form.attribs.action || page.url, page.url);
      const values = new URLSearchParams(fields);
      if (form.attribs.method?.toLowerCase() === 'post') {
        return load(action.href, redirectUri, { method: 'POST', body: values });
      }
      action.search = values.toString();
      return load(action.href, redirectUri);
    },
  };
}

/** Whether an address is the registered one, with an answer in its query. */
function isAt(url: string, redirectUri: string): boolean {
  return url === redirectUri || url.startsWith(`${redirectUri}${redirectUri.includes('?') ? '&' : '?'}`);
}

function keep(jar: Map<string, string>, line: string): void {
  const [pair = '', ...attributes] = line.split(';');
  const [name = '', value = ''] = pair.trim().split(/=(.*)/s);
  if (attributes.some((attribute) => /^\s*(max-age=0|expires=thu, 01 jan 1970)/i.test(attribute))) jar.delete(name);
  else jar.set(name, value);
}
