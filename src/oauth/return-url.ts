/** After a connect flow, the user goes back to the site of the agency that made the link. */

/** `pending`: the connect flow ends in the background. `refused`: the user refused it. */
export interface ConnectOutcome {
  connection?: string;
  status: 'connected' | 'pending' | 'refused' | 'failed';
}

/** The address as browsers read it, if its origin is one of `origins` and it can take an outcome. Undefined otherwise. */
export function allowedReturnUrl(text: string, origins: readonly string[]): string | undefined {
  // Browsers drop or replace these characters.
  if (/[\s\\\p{C}]/u.test(text)) return undefined;
  const url = URL.parse(text);
  // The origin of blob:https://… is that of the address in it.
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password) return undefined;
  if (!origins.includes(url.origin)) return undefined;
  return url.searchParams.has('connection') || url.searchParams.has('status') ? undefined : url.href;
}

/** The address with the outcome. Its own query stays as it is. */
export function withOutcome(returnUrl: string, outcome: ConnectOutcome): string {
  const url = new URL(returnUrl);
  url.search = [url.search.slice(1), new URLSearchParams({ ...outcome })].filter(String).join('&');
  return url.href;
}
