import * as client from 'openid-client';
import { reasonOf, storable } from '../../errors.ts';
import { highestRole, type Operator, type Role } from '../../roles.ts';

/** The OpenID provider where operators sign in (OpenID Connect Core 1.0, authorization code flow with PKCE). */

export interface ProviderSettings {
  issuer: string;
  clientId: string;
  clientSecret: string;
  scopes: string;
  /** The claim with the groups or roles of an account; dots lead into objects, as in `realm_access.roles`. */
  roleClaim: string;
  /** The values of the claim that give a role. */
  grants: { role: Role; value: string }[];
}

/** What the browser keeps during a sign-in. */
export interface Attempt {
  state: string;
  nonce: string;
  verifier: string;
}

type Failure = 'provider_unavailable' | 'sign_in_denied' | 'sign_in_invalid' | 'no_role' | 'no_device_flow';

/** A sign-in that did not succeed. The message is for the person who signs in. */
export class SignInFailed extends Error {
  override readonly name = 'SignInFailed';
  readonly code: Failure;
  constructor(code: Failure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Seconds that the clocks of provider and mirror may differ. */
const clockTolerance = 60;
const timeoutSeconds = 10;

export type Provider = ReturnType<typeof createProvider>;

export function createProvider(settings: ProviderSettings, deps: { publicUrl: string; fetch: typeof fetch }) {
  const { issuer, clientId, clientSecret, scopes } = settings;
  const redirectUri = `${deps.publicUrl}/sign-in/callback`;

  /** Read again for each sign-in, so that new keys and endpoints of the provider apply at once. */
  async function discover(): Promise<client.Configuration> {
    try {
      const config = await client.discovery(
        new URL(issuer),
        clientId,
        { [client.clockTolerance]: clockTolerance },
        authenticationWith(clientSecret),
        {
          timeout: timeoutSeconds,
          [client.customFetch]: deps.fetch as client.CustomFetch,
          execute: issuer.startsWith('http:') ? [client.allowInsecureRequests] : [],
        },
      );
      // Checks the signature of ID tokens, too.
      client.enableNonRepudiationChecks(config);
      return config;
    } catch (cause) {
      throw new SignInFailed(
        'provider_unavailable',
        `${new URL(issuer).host} does not answer as an OpenID provider now (${reasonOf(cause)}).`,
        { cause },
      );
    }
  }

  return {
    name: new URL(issuer).host,

    /** Where the browser signs in, and what it must bring back. @throws SignInFailed */
    async begin(): Promise<{ url: URL; attempt: Attempt }> {
      const config = await discover();
      const attempt = {
        state: client.randomState(),
        nonce: client.randomNonce(),
        verifier: client.randomPKCECodeVerifier(),
      };
      const url = client.buildAuthorizationUrl(config, {
        redirect_uri: redirectUri,
        scope: scopes,
        state: attempt.state,
        nonce: attempt.nonce,
        code_challenge: await client.calculatePKCECodeChallenge(attempt.verifier),
        code_challenge_method: 'S256',
      });
      return { url, attempt };
    },

    /** The operator behind the answer of the provider. `query`: of the callback. @throws SignInFailed */
    async finish(query: string, { state, nonce, verifier }: Attempt): Promise<Operator> {
      const config = await discover();
      const tokens = await client
        .authorizationCodeGrant(config, new URL(`${redirectUri}${query}`), {
          expectedState: state,
          expectedNonce: nonce,
          pkceCodeVerifier: verifier,
          idTokenExpected: true,
        })
        .catch((cause) => {
          throw failureOf(cause);
        });
      return accountOf(settings, config, tokens, 'oidc');
    },

    /**
     * Where the browser signs out at the provider, without an ID token in the address. Undefined: it has no such page.
     * @throws SignInFailed
     */
    async signOutUrl(): Promise<URL | undefined> {
      const config = await discover();
      if (config.serverMetadata().end_session_endpoint === undefined) return undefined;
      return client.buildEndSessionUrl(config, {
        post_logout_redirect_uri: `${deps.publicUrl}/sign-in`,
      });
    },

    /** Begins a sign-in in a terminal (RFC 8628). @throws SignInFailed */
    async beginDevice(): Promise<client.DeviceAuthorizationResponse> {
      const config = await discover();
      if (config.serverMetadata().device_authorization_endpoint === undefined) {
        throw new SignInFailed(
          'no_device_flow',
          'The provider has no device flow. Create a token in the dashboard, and set ASSET_MIRROR_TOKEN.',
        );
      }
      return client.initiateDeviceAuthorization(config, { scope: scopes }).catch((cause) => {
        throw failureOf(cause);
      });
    },

    /** Asks once whether the person has signed in. Undefined: not yet. @throws SignInFailed */
    async finishDevice(deviceCode: string): Promise<Operator | undefined> {
      const config = await discover();
      try {
        const tokens = await client.genericGrantRequest(config, deviceGrant, { device_code: deviceCode });
        return await accountOf(settings, config, tokens, 'device');
      } catch (cause) {
        if (cause instanceof SignInFailed) throw cause;
        const { error } = cause as { error?: string };
        if (error === 'authorization_pending' || error === 'slow_down') return undefined;
        throw failureOf(cause);
      }
    },
  };
}

const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code';

/** HTTP Basic, the default of OpenID Connect, unless the provider says that it takes only the other way. */
const authenticationWith =
  (secret: string): client.ClientAuth =>
  (server, ...rest) => {
    const { token_endpoint_auth_methods_supported: supported = ['client_secret_basic'] } = server;
    const authenticate = supported.includes('client_secret_basic') ? client.ClientSecretBasic : client.ClientSecretPost;
    return authenticate(secret)(server, ...rest);
  };

async function accountOf(
  settings: ProviderSettings,
  config: client.Configuration,
  tokens: client.TokenEndpointResponse & client.TokenEndpointResponseHelpers,
  method: 'oidc' | 'device',
): Promise<Operator> {
  const claims = tokens.claims();
  if (!claims)
    throw new SignInFailed('sign_in_invalid', 'The provider sent no ID token. OIDC_SCOPES must have openid.');
  const info = await userInfoOf(settings, config, tokens.access_token, claims);
  const values = [claims, info].flatMap((from) => valuesOf(verified(from), settings.roleClaim));
  const role = highestRole(settings.grants.filter(({ value }) => values.includes(value)).map((grant) => grant.role));
  const all = verified({ ...info, ...claims });
  const known = [all.email, all.preferred_username, all.name].find((it) => typeof it === 'string' && it !== '');
  const name = storable(String(known ?? claims.sub));
  if (role === undefined) throw new SignInFailed('no_role', noRole(settings, name));
  return { subject: storable(claims.sub), name, role, method };
}

/** Some providers let people choose any e-mail address: it counts once it is verified. */
const verified = ({ email, ...claims }: Record<string, unknown>): Record<string, unknown> =>
  claims.email_verified === false ? claims : { ...claims, email };

/** Many providers put the groups, and some the e-mail address, only into the answer of the userinfo endpoint. */
async function userInfoOf(
  { roleClaim }: ProviderSettings,
  config: client.Configuration,
  accessToken: string,
  claims: client.IDToken,
): Promise<Record<string, unknown>> {
  const isComplete = valuesOf(claims, roleClaim).length > 0 && claims.email !== undefined;
  if (isComplete || config.serverMetadata().userinfo_endpoint === undefined) return {};
  return client.fetchUserInfo(config, accessToken, claims.sub).catch((cause) => {
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
  return `${name} has no role here. Ask an administrator of your sign-in for one of these in "${roleClaim}": ${values}. Then sign in again.`;
}

/** Sorts an error of the provider's answer. */
function failureOf(cause: unknown): SignInFailed {
  if (cause instanceof client.AuthorizationResponseError && cause.error === 'access_denied') {
    return new SignInFailed('sign_in_denied', 'The provider reports that the sign-in was denied or cancelled.', {
      cause,
    });
  }
  const { error, code, status = 0 } = cause as { error?: string; code?: string; status?: number };
  const isAway = cause instanceof TypeError || code === 'OAUTH_TIMEOUT' || status >= 500;
  if (isAway) {
    return new SignInFailed('provider_unavailable', `The provider does not answer now (${reasonOf(cause)}).`, {
      cause,
    });
  }
  return new SignInFailed(
    'sign_in_invalid',
    `The answer of the provider was not accepted (${error ?? code ?? reasonOf(cause)}). Sign in again.`,
    { cause },
  );
}
