import { Rejected, RetryLater, StorageUnavailable } from '../errors.ts';

/** Of an answer of the store; undefined: there was none. */
export const statusOf = (error: unknown) =>
  (error as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;

/** What the store, the SDK or the socket calls it. */
export const codeOf = (error: unknown) => {
  const { name, Code, code, message } = (error ?? {}) as {
    name?: string;
    Code?: string;
    code?: string;
    message?: string;
  };
  // The SDK has one name for all that takes too long; this one is about the store, the others may be about a slow body.
  if (name === 'TimeoutError' && message?.includes('did not establish a connection')) return 'ETIMEDOUT';
  return [Code, code, name].find((value) => typeof value === 'string' && value !== 'Error') ?? '';
};

const words: Record<string, string> = {
  NoSuchBucket: 'the bucket does not exist; make it, or correct STORAGE_URL',
  AccessDenied: 'the store denies access; check the credentials and the policy of the bucket',
  AllAccessDisabled: 'the store has disabled access to the bucket',
  AccountProblem: 'the store reports a problem with the account',
  InvalidAccessKeyId: 'the store does not know the access key; check the credentials',
  XAdminUserNotFound: 'the store does not know the access key; check the credentials',
  SignatureDoesNotMatch: 'the store refuses the signature; check the secret key',
  ExpiredToken: 'the credentials have expired',
  InvalidToken: 'the store refuses the session token',
  CredentialsProviderError:
    'no credentials were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role',
  RequestTimeTooSkewed: 'the clock of this machine differs too much from that of the store',
  MissingContentLength: 'the store takes no checksum behind a stream; set S3_CHECKSUMS to auto or md5-etag',
  TrailerUnknown: 'the store takes no checksum behind a stream; set S3_CHECKSUMS to auto or md5-etag',
  PermanentRedirect: 'the bucket is in another region; correct S3_REGION or S3_ENDPOINT',
  QuotaExceeded: 'the quota of the bucket is used up',
  XMinioStorageFull: 'the store is full',
  ECONNREFUSED: 'the store cannot be reached',
  ENOTFOUND: 'the name of the store cannot be resolved; check S3_ENDPOINT',
  EAI_AGAIN: 'the name of the store cannot be resolved at present',
  ETIMEDOUT: 'the store cannot be reached',
  EHOSTDOWN: 'the store cannot be reached',
  EHOSTUNREACH: 'the store cannot be reached',
  ENETUNREACH: 'the store cannot be reached',
};

/** Errors of calls that got no answer. */
const lost = new WeakSet<object>();

/** Whether a call that `sorted` has seen got no answer at all. */
export const gotNoAnswer = (error: unknown) => lost.has(error as object);

/** What the whole bucket suffers from is told apart from what one object does. */
export function sorted(error: unknown, name: string): unknown {
  const code = codeOf(error);
  const status = statusOf(error);
  const word = words[code] ?? (status === 403 ? words.AccessDenied : status === 507 ? 'the store is full' : undefined);
  if (word) return new StorageUnavailable(`${name}: ${word} (${code || status})`, { cause: error });
  if (code.startsWith('KMS')) {
    return new StorageUnavailable(
      `${name}: the store cannot use the encryption key; check S3_SSE_KMS_KEY_ID (${code})`,
      {
        cause: error,
      },
    );
  }
  if (code === 'EntityTooLarge') return new Rejected(`${name}: the file is larger than the store takes`);
  if (code === 'SlowDown' || code === 'ServiceUnavailable' || status === 503 || status === 429) {
    return new RetryLater(`${name}: the store asked to slow down`, new Date(Date.now() + 2000 + Math.random() * 8000), {
      cause: error,
    });
  }
  if (status !== undefined && status >= 500) {
    // An object that is refused for good is told by its reason; a store that is unwell makes all of them wait.
    return new RetryLater(
      `${name}: the store answered ${status}`,
      new Date(Date.now() + 5000 + Math.random() * 10_000),
      {
        cause: error,
      },
    );
  }
  if (status === undefined && /^(E[A-Z]+|HPE_\w+|TimeoutError)$/.test(code)) lost.add(error as object);
  return error;
}
