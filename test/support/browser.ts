/** A browser as far as a connect flow needs one: cookies, redirects one at a time. */
export function newBrowser() {
  const cookies = new Map<string, Map<string, string>>();

  async function send(
    method: string,
    url: string,
    headers: Record<string, string> = {},
    body?: URLSearchParams,
  ): Promise<Response> {
    const { host } = new URL(url);
    const jar = cookies.get(host) ?? new Map<string, string>();
    cookies.set(host, jar);
    const response = await fetch(url, {
      method,
      redirect: 'manual',
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; '), ...headers },
      ...(body && { body }),
    });
    for (const line of response.headers.getSetCookie()) {
      const [pair = '', ...attributes] = line.split(';');
      const [name = '', value = ''] = pair.split(/=(.*)/s);
      const gone = attributes.some((a) => /^\s*(max-age=0|expires=thu, 01 jan 1970)/i.test(a));
      if (gone) jar.delete(name);
      else jar.set(name, value);
    }
    return response;
  }

  const get = (url: string) => send('GET', url);
  return {
    get,
    send,
    /** Sends a form. */
    post: (url: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
      send('POST', url, headers, new URLSearchParams(fields)),
    cookies,
    /** Follows redirects to the end. */
    async visit(url: string): Promise<{ status: number; url: string; text: string }> {
      for (let hops = 0; hops < 15; hops++) {
        const response = await get(url);
        const location = response.headers.get('location');
        if (location === null) return { status: response.status, url, text: await response.text() };
        await response.body?.cancel();
        url = new URL(location, url).href;
      }
      throw new Error(`redirects without end at ${url}`);
    },
  };
}
