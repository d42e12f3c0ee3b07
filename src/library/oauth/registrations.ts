import { z } from 'zod';
import { settingOf } from '../database/store.ts';
import type { Registration } from '../model.ts';
import { newId, newSecret } from '../secrets.ts';
import type { Service } from '../service.ts';

const DEFAULT_REDIRECT = 'http://localhost:8080/oauth/callback';

const Website = z.url({ protocol: /^https?$/ });
const Logo = z
  .url({ protocol: /^https$/, error: 'is an https address' })
  .refine((address) => !/\.(jpe?g|gif|webp|avif|bmp|ico|tiff?)$/i.test(new URL(address).pathname), 'is a PNG or SVG');
const RedirectUri = z.string().refine(isAllowedRedirect, 'is https, or http on this machine for testing, without #');

/** Section 2.1: what the developer of an app supplies. */
export const NewRegistration = z.strictObject({
  name: z.string().min(1),
  logoUrl: Logo.nullable().default(null),
  websiteUrl: Website,
  redirectUris: z.array(RedirectUri).min(1),
});

/** Registers an app. Its secret is in this answer and nowhere else: only a hash of it is kept. */
export async function registerApp(
  service: Service,
  app: z.infer<typeof NewRegistration>,
): Promise<Registration & { clientSecret: string }> {
  const registration = { clientId: newId('app'), ...app };
  const clientSecret = newSecret('svcs_');
  await service.accounts.register(registration, clientSecret);
  return { ...registration, clientSecret };
}

/** Section 2.2: the new secret takes the place of the old one. */
export async function rotateSecret(service: Service, registration: Registration): Promise<string> {
  const clientSecret = newSecret('svcs_');
  await service.accounts.register(registration, clientSecret);
  return clientSecret;
}

/** Everything of an app is forgotten, and what it was granted ends. */
export async function unregisterApp(service: Service, { clientId }: Registration): Promise<void> {
  const { accounts, connections } = service;
  await accounts.unregister(clientId);
  await connections.end(...connections.to(clientId).map(({ id }) => id));
}

type OwnApp = {
  clientId?: string;
  clientSecret?: string;
  rotateSecret?: boolean;
  app?: { name?: string; logoUrl?: string; websiteUrl?: string };
  redirectUris?: string[];
};

/** Registers the app that a library starts with, or changes what is given now in the registration of an earlier start. */
export async function registerOwnApp(
  service: Service,
  { rotateSecret = false, app = {}, redirectUris, ...given }: OwnApp,
): Promise<{ clientId: string; clientSecret: string | null }> {
  const clientId = given.clientId ?? (await settingOf(service.store, 'app', () => newId('app')));
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
  if (!URL.canParse(address) || address.includes('#')) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === 'https:' || (protocol === 'http:' && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname));
}
