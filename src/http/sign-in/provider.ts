import * as client from 'openid-client';
import type { Operator } from '../../floor/roles.ts';
import { operatorOf } from './account.ts';
import type { ProviderSettings } from './provider-settings.ts';
import { failureOf, SignInFailed, unavailable } from './sign-in-failed.ts';

/** What the browser keeps during a sign-in. */
export interface Attempt {
  state: string;
  nonce: string;
  verifier: string;
}

/** Seconds that the clocks of provider and mirror may differ. */
const clockTolerance = 60;
const timeoutSeconds = 10;

export type Provider = ReturnType<typeof createProvider>;

/** The OpenID provider where operators sign in (OpenID Connect Core 1.0, authorization code flow with PKCE). */
export function createProvider(settings: ProviderSettings, deps: { publicUrl: string; fetch: typeof fetch }) {
  const { issuer, scopes } = settings;
  const redirectUri = `${deps.publicUrl}/sign-in/callback`;

  const discover = () => readProvider(settings, deps.fetch);

  return {
    name: new URL(issuer).host,

    /** @throws SignInFailed if it does not answer as a provider */
    check: async (): Promise<void> => void (await discover()),

    /** The address where the browser signs in, and the attempt that the browser must keep until it returns. @throws SignInFailed */
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

    /** The operator that the provider names. `query`: of the callback. @throws SignInFailed */
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
      return operatorOf(settings, config, tokens, 'oidc');
    },

    /**
     * The address where the browser signs out, without an ID token in it. Undefined: the provider has no such page.
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
    beginDevice: async (): Promise<client.DeviceAuthorizationResponse> => beginDevice(await discover(), scopes),

    /** Asks once whether the person has signed in. @throws SignInFailed */
    async finishDevice(deviceCode: string): Promise<Operator | Pending> {
      const config = await discover();
      const tokens = await askForTokens(config, deviceCode);
      return isPending(tokens) ? tokens : operatorOf(settings, config, tokens, 'device');
    },
  };
}

/**
 * Reads what the provider publishes about itself, again for each sign-in: its new keys and endpoints apply at once.
 * @throws SignInFailed
 */
async function readProvider(settings: ProviderSettings, fetch: typeof globalThis.fetch): Promise<client.Configuration> {
  const { issuer, clientId, clientSecret } = settings;
  try {
    const config = await client.discovery(
      new URL(issuer),
      clientId,
      { [client.clockTolerance]: clockTolerance },
      authenticationWith(clientSecret),
      {
        timeout: timeoutSeconds,
        [client.customFetch]: fetch as client.CustomFetch,
        execute: issuer.startsWith('http:') ? [client.allowInsecureRequests] : [],
      },
    );
    // Checks the signature of ID tokens, too.
    client.enableNonRepudiationChecks(config);
    return config;
  } catch (cause) {
    throw unavailable(issuer, cause);
  }
}

/** Begins a sign-in in a terminal. @throws SignInFailed */
async function beginDevice(config: client.Configuration, scope: string): Promise<client.DeviceAuthorizationResponse> {
  if (config.serverMetadata().device_authorization_endpoint === undefined) {
    throw new SignInFailed(
      'no_device_flow',
      'The provider has no device flow. Create a token in the dashboard, and set ASSET_MIRROR_TOKEN.',
    );
  }
  return client.initiateDeviceAuthorization(config, { scope }).catch((cause) => {
    throw failureOf(cause);
  });
}

/** The person has not signed in yet. `slowDown`: from now on, ask less often (RFC 8628, section 3.5). */
interface Pending {
  pending: true;
  slowDown: boolean;
}
type Tokens = client.TokenEndpointResponse & client.TokenEndpointResponseHelpers;

const isPending = (tokens: Tokens | Pending): tokens is Pending => tokens.pending === true;

/** @throws SignInFailed */
async function askForTokens(config: client.Configuration, deviceCode: string): Promise<Tokens | Pending> {
  return client.genericGrantRequest(config, deviceGrant, { device_code: deviceCode }).catch((cause): Pending => {
    const { error } = cause as { error?: string };
    const slowDown = error === 'slow_down';
    if (slowDown || error === 'authorization_pending') return { pending: true, slowDown };
    throw failureOf(cause);
  });
}

const deviceGrant = 'urn:ietf:params:oauth:grant-type:device_code';

/**
 * Sends the client secret in the body if the provider accepts that, or else by HTTP Basic. In the device flow, some
 * providers read it only from the body.
 */
const authenticationWith =
  (secret: string): client.ClientAuth =>
  (server, ...rest) => {
    const isInBody = server.token_endpoint_auth_methods_supported?.includes('client_secret_post');
    const authenticate = isInBody ? client.ClientSecretPost : client.ClientSecretBasic;
    return authenticate(secret)(server, ...rest);
  };
