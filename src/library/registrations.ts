import { z } from 'zod';
import type { Registration } from './accounts.ts';
import { newId, newSecret } from './secrets.ts';
import type { Service } from './service.ts';

const Website = z.url({ protocol: /^https?$/ });
const Logo = z.url({ protocol: /^https$/, error: 'is an https address' });
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
  given: { clientId?: string; clientSecret?: string } = {},
): Promise<Registration & { clientSecret: string }> {
  const { clientId = newId('app'), clientSecret = newSecret('svcs_') } = given;
  const registration = { clientId, ...app };
  await service.accounts.register(registration, clientSecret);
  return { ...registration, clientSecret };
}

/** Section 2.2: the new secret takes the place of the old one. */
export async function rotateSecret(service: Service, registration: Registration): Promise<string> {
  const clientSecret = newSecret('svcs_');
  await service.accounts.register(registration, clientSecret);
  return clientSecret;
}

function isAllowedRedirect(address: string): boolean {
  if (!URL.canParse(address) || address.includes('#')) return false;
  const { protocol, hostname } = new URL(address);
  return protocol === 'https:' || (protocol === 'http:' && /^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname));
}
