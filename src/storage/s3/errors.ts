import { Archived, type Diagnosis, Rejected, RetryLater, StorageUnavailable } from '../../floor/errors.ts';
import { networkProblem } from '../../floor/network-problem.ts';

/** The HTTP status of the store's answer; undefined without an answer. */
export const statusOf = (error: unknown) =>
  (error as { $metadata?: { httpStatusCode?: number } } | undefined)?.$metadata?.httpStatusCode;

/** The error code that the store, the SDK or the socket gave. */
export const codeOf = (error: unknown) => {
  const { name, Code, code, message } = (error ?? {}) as {
    name?: string;
    Code?: string;
    code?: string;
    message?: string;
  };
  // The SDK calls every timeout TimeoutError. Only a failed connection shows that the store is unreachable; others may be a slow body.
  if (name === 'TimeoutError' && message?.includes('did not establish a connection')) return 'ETIMEDOUT';
  return [Code, code, name].find((value) => typeof value === 'string' && value !== 'Error') ?? '';
};

/** Whether the object, version or upload does not exist. Stores name an unknown upload NoSuchUpload or NoSuchKey. */
export const isNotFound = (error: unknown) => statusOf(error) === 404 && codeOf(error) !== 'NoSuchBucket';

/** Whether the store says that it has no such object or version. A bare 404 may be the answer of a proxy. */
export const hasNoObject = (error: unknown) => ['NoSuchKey', 'NoSuchVersion'].includes(codeOf(error));

/** Whether the store does not implement this request. */
export const isUnsupported = (error: unknown) =>
  [405, 501].includes(statusOf(error) ?? 0) || ['NotImplemented', 'MethodNotAllowed'].includes(codeOf(error));

/** What is wrong, and what to do, by error code. */
const diagnoses: Record<string, [found: string, remedy?: string]> = {
  NoSuchBucket: ['the bucket does not exist', 'create the bucket, or correct STORAGE_URL'],
  AccessDenied: ['the store denies access', 'check the credentials and the policy of the bucket'],
  AllAccessDisabled: ['the store has disabled access to the bucket'],
  AccountProblem: ['the store reports a problem with the account'],
  InvalidAccessKeyId: ['the store does not know the access key', 'check the credentials'],
  XAdminUserNotFound: ['the store does not know the access key', 'check the credentials'],
  SignatureDoesNotMatch: ['the store refuses the signature', 'check the secret key'],
  ExpiredToken: ['the credentials have expired'],
  InvalidToken: ['the store refuses the session token'],
  CredentialsProviderError: [
    'no credentials were found',
    'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the host a role',
  ],
  RequestTimeTooSkewed: ['the clock of this machine differs too much from that of the store'],
  MissingContentLength: ['the store accepts no checksum after a stream', 'set S3_CHECKSUMS to auto or md5-etag'],
  TrailerUnknown: ['the store accepts no checksum after a stream', 'set S3_CHECKSUMS to auto or md5-etag'],
  PermanentRedirect: ['the bucket is in another region', 'correct S3_REGION or S3_ENDPOINT'],
  InvalidStorageClass: ['the store does not know the storage class', 'correct S3_STORAGE_CLASS'],
  QuotaExceeded: ['the quota of the bucket is used up'],
  XMinioStorageFull: ['the store is full'],
};

function diagnosisOf(code: string, status: number | undefined): (typeof diagnoses)[string] | undefined {
  if (code.startsWith('KMS')) return ['the store cannot use the encryption key', 'check S3_SSE_KMS_KEY_ID'];
  const byStatus = status === 403 ? diagnoses.AccessDenied : status === 507 ? diagnoses.XMinioStorageFull : undefined;
  return diagnoses[code] ?? byStatus;
}

/** Why there is no connection, and what to do. Undefined: there was one. */
function connectionProblem(error: unknown, name: string): Diagnosis | undefined {
  const problem = networkProblem(error, codeOf(error));
  if (!problem) return undefined;
  const { hostname, host = hostname } = error as { hostname?: string; host?: string };
  const bucket = name.slice('s3://'.length).split('/')[0];
  const pathStyle = host?.startsWith(`${bucket}.`)
    ? ', or set S3_FORCE_PATH_STYLE=true: without it the name of the bucket is part of the host name'
    : '';
  return { found: problem.found, remedy: `${problem.remedy('S3_ENDPOINT')}${pathStyle}` };
}

/** Whether the store did not answer at all. */
export const gotNoAnswer = (error: unknown) =>
  statusOf(error) === undefined && /^(E[A-Z]+|HPE_\w+|TimeoutError)$/.test(codeOf(error));

/** Turns an SDK error into a class of errors.ts if it concerns the whole store, must wait, or can never succeed. Others stay as they are. */
export function classify(error: unknown, name: string): unknown {
  const code = codeOf(error);
  const status = statusOf(error);
  // The answer to a GET or a copy of an archived object.
  if (code === 'InvalidObjectState' || code === 'ObjectNotInActiveTierError') return new Archived({ cause: error });
  const connection = connectionProblem(error, name);
  if (connection) {
    return new StorageUnavailable(`${name}: ${connection.found}; ${connection.remedy}`, { diagnosis: connection });
  }
  const known = diagnosisOf(code, status);
  if (known) {
    const [found, remedy] = known;
    const diagnosis = remedy ? { found, remedy } : undefined;
    return new StorageUnavailable(`${name}: ${known.join('; ')} (${code || status})`, { diagnosis, cause: error });
  }
  if (code === 'EntityTooLarge') return new Rejected({ code: 'too_large', store: name });
  if (isUnsupported(error)) {
    return new Rejected({ code: 'store_unsupported', store: name, error: `${code || status}` }, { cause: error });
  }
  if (code === 'SlowDown' || code === 'ServiceUnavailable' || status === 503 || status === 429) {
    return new RetryLater({ code: 'store_busy', store: name }, 2000 + Math.random() * 8000, { cause: error });
  }
  if (status !== undefined && status >= 500) {
    const reason = { code: 'object_refused', error: `${name}: the store answered ${status}` } as const;
    return new RetryLater(reason, 5000 + Math.random() * 10_000, { cause: error });
  }
  return error;
}
