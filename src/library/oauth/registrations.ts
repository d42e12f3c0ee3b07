import { z } from 'zod';
import type { Registration } from '../model.ts';
import { newId, newSecret } from '../secrets.ts';
import type { Service } from '../service.ts';

const DEFAULT_REDIRECT = 'http://localhost:8080/oauth/callback';

const Website = z.url({ protocol: /^https?$/ });
const Logo = z
  .url({ protocol: /^https$/, error: 'must be an https address' })
  .refine(
    (address) => !/\.(jpe?g|gif|webp|avif|bmp|ico|tiff?)$/i.test(new URL(address).pathname),
    'must be PNG or SVG',
  );
const RedirectUri = z
  .string()
  .refine(isAllowedRedirect, 'must be https, or http on this machine for testing, without a fragment');

/** Section 2.1: what the developer of an app supplies. */
export const NewRegistration = z.strictObject({
  name: z.string().min(1),
  logoUrl: Logo.nullable().default(null),
  websiteUrl: Website,
  redirectUris: z.array(RedirectUri).min(1),
});

/** Registers an app. Its secret is returned only here: the library stores a hash of it. */
export async function registerApp(
  service: Service,
  app: z.infer<typeof NewRegistration>,
): Promise<Registration & { clientSecret: string }> {
  const registration = { clientId: newId('app'), ...app };
  return { ...registration, clientSecret: await rotateSecret(service, registration) };
}

/** Section 2.2: the new secret replaces the old one. */
export async function rotateSecret(service: Service, registration: Registration): Promise<string> {
  const clientSecret = newSecret('svcs_');
  await service.accounts.register(registration, clientSecret);
  return clientSecret;
}

/** Removes an app and ends its connections. */
export async function unregisterApp({ accounts, connections }: Service, { clientId }: Registration): Promise<void> {
  await accounts.unregister(clientId);
  await connections.end(connections.ofApp(clientId));
}

/** The app that is registered at the start. Values that are not given stay as they were registered before. */
export type OwnApp = {
  clientId?: string;
  clientSecret?: string;
  /** Creates a new secret, which replaces the one of an earlier start. */
  rotateSecret?: boolean;
  app?: { name?: string; logoUrl?: string; websiteUrl?: string };
  redirectUris?: string[];
};

/** Registers the library's own app. The secret is null if an earlier start has returned it. */
export async function registerOwnApp(
  service: Service,
  { rotateSecret = false, app = {}, redirectUris, ...given }: OwnApp,
): Promise<{ clientId: string; clientSecret: string | null }> {
  const clientId = given.clientId ?? (await service.store.setting('app', () => newId('app')));
  const known = service.accounts.registration(clientId);
  const uris = redirectUris ?? known?.redirectUris ?? [DEFAULT_REDIRECT];
  const { clientId: _, ...before } = known ?? { clientId, name: 'asset-mirror' };
  const websiteUrl = URL.parse(uris[0] ?? '')?.origin;
  const parsed = NewRegistration.safeParse({ websiteUrl, ...before, ...app, redirectUris: uris });
  if (!parsed.success) throw new Error(`The app cannot be registered: ${z.prettifyError(parsed.error)}`);

  const clientSecret = given.clientSecret ?? (known && !rotateSecret ? null : newSecret('svcs_'));
  await service.accounts.register({ clientId, ...parsed.data }, clientSecret ?? undefined);
  return { clientId, clientSecret };
}

function isAllowedRedirect(address: string): boolean {
  const url = URL.parse(address);
  if (!url || address.includes('#')) return false;
  return (
    url.protocol === 'https:' || (url.protocol === 'http:' && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname))
  );
}
