import { AuthorizationResponseError } from 'openid-client';
import { NamedError, reasonOf, storableText } from '../../floor/errors.ts';

/** The HTTP status of each reason why a sign-in did not succeed. */
const statuses = {
  provider_unavailable: 503,
  sign_in_denied: 403,
  sign_in_invalid: 400,
  no_role: 403,
  no_device_flow: 404,
} as const;

/** A sign-in that did not succeed. The message is for the person who signs in. */
export class SignInFailed extends NamedError {
  readonly code: keyof typeof statuses;

  constructor(code: keyof typeof statuses, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }

  get status(): number {
    return statuses[this.code];
  }
}

/** The provider does not answer, or OIDC_ISSUER is wrong. */
export function unavailable(issuer: string, cause: unknown): SignInFailed {
  const where = `it must be exactly the issuer in ${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
  return new SignInFailed(
    'provider_unavailable',
    `${new URL(issuer).host} does not answer as an OpenID provider now (${said(cause)}). Try again later. If that does not help, check OIDC_ISSUER: ${where}.`,
    { cause },
  );
}

/** The error for the person who signs in, from an error of a request to the provider. */
export function failureOf(cause: unknown): SignInFailed {
  if (cause instanceof AuthorizationResponseError && cause.error === 'access_denied') {
    return new SignInFailed('sign_in_denied', 'The provider reports that the sign-in was denied or cancelled.', {
      cause,
    });
  }
  const { error, code, status = 0 } = cause as { error?: string; code?: string; status?: number };
  const isUnreachable = cause instanceof TypeError || code === 'OAUTH_TIMEOUT' || status >= 500;
  if (isUnreachable) {
    return new SignInFailed(
      'provider_unavailable',
      `The provider does not answer now (${said(cause)}). Try again later.`,
      {
        cause,
      },
    );
  }
  if (error === 'invalid_client' || error === 'unauthorized_client') {
    const detail = `The provider does not accept OIDC_CLIENT_ID and OIDC_CLIENT_SECRET (${error}). Tell the administrators of asset-mirror.`;
    return new SignInFailed('sign_in_invalid', detail, { cause });
  }
  return new SignInFailed(
    'sign_in_invalid',
    `The answer of the provider was not accepted (${error ?? said(cause)}). Sign in again. If that does not help, tell the administrators of asset-mirror.`,
    { cause },
  );
}

/** The message of an error. The causes of openid-client's errors may be answers of the provider, which are omitted. */
const said = (error: unknown) =>
  error instanceof Error && error.cause !== undefined && !(error.cause instanceof Error)
    ? storableText(error.message)
    : reasonOf(error);
