/** A browser as far as a connect flow needs one: cookies, redirects one at a time. */
export function newBrowser() {
  const cookies = new Map<string, Map<string, string>>();

  async function get(url: string): Promise<Response> {
    const { host } = new URL(url);
    const jar = cookies.get(host) ?? new Map<string, string>();
    cookies.set(host, jar);
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') },
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

  return {
    get,
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
