import * as client from 'openid-client';
import { storableText } from '../../floor/errors.ts';
import { highestRole, type Operator } from '../../floor/roles.ts';
import type { ProviderSettings } from './provider-settings.ts';
import { failureOf, SignInFailed } from './sign-in-failed.ts';

/** The operator behind the tokens of the provider. @throws SignInFailed if the account has no role */
export async function operatorOf(
  settings: ProviderSettings,
  config: client.Configuration,
  tokens: client.TokenEndpointResponse & client.TokenEndpointResponseHelpers,
  method: 'oidc' | 'device',
): Promise<Operator> {
  const claims = tokens.claims();
  if (!claims)
    throw new SignInFailed('sign_in_invalid', 'The provider sent no ID token. OIDC_SCOPES must have openid.');
  const info = await userInfoOf(settings, config, tokens.access_token, claims);
  const sources = [claims, info].map(withVerifiedEmail);
  const values = sources.flatMap((from) => valuesOf(from, settings.roleClaim));
  const role = highestRole(settings.grants.filter(({ value }) => values.includes(value)).map((grant) => grant.role));
  const names = ['email', 'preferred_username', 'name'].flatMap((name) => sources.map((from) => from[name]));
  const known = names.find((it) => typeof it === 'string' && it !== '');
  const name = storableText(String(known ?? claims.sub));
  if (role === undefined) throw new SignInFailed('no_role', noRole(settings, name));
  return { subject: storableText(claims.sub), name, role, method };
}

/**
 * The claims, without an e-mail address that is not verified: some providers let people choose any address. Some send
 * `email_verified` as text.
 */
const withVerifiedEmail = ({ email, ...claims }: Record<string, unknown>): Record<string, unknown> =>
  String(claims.email_verified) === 'true' ? { ...claims, email } : claims;

/** Many providers put the groups, and some the e-mail address, only into the answer of the userinfo endpoint. */
async function userInfoOf(
  { roleClaim }: ProviderSettings,
  config: client.Configuration,
  accessToken: string,
  claims: client.IDToken,
): Promise<Record<string, unknown>> {
  const own = withVerifiedEmail(claims);
  const hasRole = valuesOf(own, roleClaim).length > 0;
  if ((hasRole && own.email !== undefined) || config.serverMetadata().userinfo_endpoint === undefined) return {};
  return client.fetchUserInfo(config, accessToken, claims.sub).catch((cause) => {
    if (hasRole) return {};
    throw failureOf(cause);
  });
}

/** The values of a claim: one text, or a list of them. */
function valuesOf(claims: Record<string, unknown>, path: string): string[] {
  // A claim may have dots in its own name, as a URL has.
  const found =
    claims[path] ??
    path.split('.').reduce<unknown>((at, part) => (at as Record<string, unknown> | undefined)?.[part], claims);
  return [found].flat().filter((value) => typeof value === 'string');
}

function noRole({ roleClaim, grants }: ProviderSettings, name: string): string {
  const values = grants.map(({ role, value }) => `${value} (${role})`).join(', ');
  return `${name} has no role here. Ask an administrator of the OpenID provider for one of these values in "${roleClaim}": ${values}. Then sign in again.`;
}
