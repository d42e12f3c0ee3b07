/** Follows the redirects from the connect link to the callback, with the cookies of one browser. */
export async function connectLikeABrowser(link: string): Promise<void> {
  const cookies = new Map<string, string>();
  let url = link;
  for (let hops = 0; hops < 10; hops++) {
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
    });
    for (const line of response.headers.getSetCookie()) {
      const [pair] = line.split(';');
      const at = pair!.indexOf('=');
      cookies.set(pair!.slice(0, at), pair!.slice(at + 1));
    }
    const next = response.headers.get('location');
    await response.body?.cancel();
    if (next === null) {
      if (!response.ok) throw new Error(`connecting failed with status ${response.status} at ${new URL(url).pathname}`);
      return;
    }
    url = new URL(next, url).href;
  }
  throw new Error('connecting failed: too many redirects');
}
