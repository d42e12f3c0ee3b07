/**
 * The address of a webhook endpoint as people may see it: without the parts that may be a secret.
 * `https://hooks.example.com/…`
 */
export function shownAddress(url: string): string {
  const { origin, pathname, search } = new URL(url);
  return pathname === '/' && search === '' ? origin : `${origin}/…`;
}
