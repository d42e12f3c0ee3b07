import { spawn } from 'node:child_process';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createInterface } from 'node:readline';
import Provider from 'oidc-provider';
import { freePort } from './ports.ts';
import { spawned } from './spawned.ts';

/** An account at the provider: its claims. */
interface Account {
  groups?: string[] | string;
  email?: string;
  /** Without it, the address is verified; undefined: the provider does not say. */
  email_verified?: boolean | undefined;
  realm_access?: { roles: string[] };
}

export interface ProviderOptions {
  accounts: Record<string, Account>;
  redirectUri: string;
  signedOutUri: string;
  /** Whether claims are in the answer of the userinfo endpoint only. */
  userInfoOnly?: boolean;
  deviceFlow?: boolean;
  port?: number;
  /** Seconds. */
  lifetimes?: { idToken: number; code: number };
  /** Whether there is a page to sign out. */
  signOut?: boolean;
}

export type OpenIdProvider = Awaited<ReturnType<typeof startOpenIdProvider>>;

const client = { id: 'asset-mirror', secret: 'the-secret-of-the-mirror' };

/** A real OpenID provider (oidc-provider) on loopback. Its form asks for a name only, and consents. */
export async function startOpenIdProvider(options: ProviderOptions) {
  const port = options.port ?? (await freePort());
  const issuer = `http://127.0.0.1:${port}`;
  const lifetimes = options.lifetimes ?? { idToken: 3600, code: 60 };
  let server: Server | undefined;

  async function start(): Promise<void> {
    const provider = newProvider(issuer, options, lifetimes);
    const callback = provider.callback();
    server = createServer(async (request, response) => {
      if (request.url?.startsWith('/login/')) return login(provider, request, response);
      return callback(request, response);
    });
    await new Promise<void>((listening) => server!.listen(port, '127.0.0.1', listening));
  }
  async function stop(): Promise<void> {
    const ended = new Promise((closed) => server?.close(closed) ?? closed(undefined));
    server?.closeAllConnections();
    server = undefined;
    await ended;
  }
  await start();
  return {
    issuer,
    client,
    lifetimes,
    start,
    stop,
    /** Starts again with new signing keys. The sessions of the provider end. */
    async rotateKeys() {
      await stop();
      await start();
    },
  };
}

function newProvider(issuer: string, options: ProviderOptions, lifetimes: { idToken: number; code: number }): Provider {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig', alg: 'RS256' };
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: client.id,
        client_secret: client.secret,
        redirect_uris: [options.redirectUri],
        post_logout_redirect_uris: [options.signedOutUri],
        grant_types: [
          'authorization_code',
          ...(options.deviceFlow ? ['urn:ietf:params:oauth:grant-type:device_code'] : []),
        ],
      },
    ],
    jwks: { keys: [key] },
    claims: { openid: ['sub', 'groups', 'realm_access'], email: ['email', 'email_verified'], profile: ['name'] },
    conformIdTokenClaims: options.userInfoOnly === true,
    findAccount: async (_context, id) => ({
      accountId: id,
      claims: async () => ({ sub: id, email_verified: true, ...options.accounts[id] }),
    }),
    features: {
      devInteractions: { enabled: false },
      deviceFlow: { enabled: options.deviceFlow === true },
      rpInitiatedLogout: { enabled: options.signOut !== false },
    },
    cookies: { keys: [randomUUID()] },
    ttl: {
      AuthorizationCode: () => lifetimes.code,
      IdToken: () => lifetimes.idToken,
      DeviceCode: 600,
      AccessToken: 600,
      Grant: 3600,
      Interaction: 600,
      Session: 3600,
    },
    interactions: { url: (_context, { uid }) => `/login/${uid}` },
    // Everybody consents.
    loadExistingGrant: async (context) => {
      const { client: known, session, params } = context.oidc;
      const grant = new context.oidc.provider.Grant({ clientId: known!.clientId, accountId: session!.accountId! });
      grant.addOIDCScope(String(params!.scope));
      await grant.save();
      return grant;
    },
  });
  // The events of refusals that tests cause.
  provider.on('server_error', (_context, error) => {
    throw error;
  });
  return provider;
}

/** The form, and what it sends. */
async function login(provider: Provider, request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.method === 'GET') {
    response.setHeader('content-type', 'text/html');
    response.end('<form method="post"><input name="login" autofocus><button>Sign in</button></form>');
    return;
  }
  let body = '';
  for await (const chunk of request) body += chunk;
  const accountId = new URLSearchParams(body).get('login');
  const result = accountId
    ? { login: { accountId } }
    : { error: 'access_denied', error_description: 'The person did not sign in' };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

/** Starts the provider in a process of its own, whose clock differs by `offset`, such as `-90s`. `faketime`: path of its library. */
export async function spawnOpenIdProvider(
  options: ProviderOptions,
  { faketime, offset }: { faketime: string; offset: string },
) {
  const child = spawn(process.execPath, [import.meta.filename, JSON.stringify(options)], {
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...spawned, LD_PRELOAD: faketime, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1' },
  });
  const exit = once(child, 'exit');
  const [issuer] = (await once(createInterface(child.stdout), 'line')) as [string];
  return {
    issuer,
    async stop(): Promise<void> {
      child.kill('SIGKILL');
      await exit;
    },
  };
}

if (import.meta.main) console.log((await startOpenIdProvider(JSON.parse(process.argv[2]!))).issuer);
