/** Why a server cannot be reached, and what to do if `setting` has its address. */
export interface NetworkProblem {
  found: string;
  remedy: (setting: string) => string;
}

interface NetworkError {
  code?: unknown;
  syscall?: string;
  cause?: unknown;
  message?: string;
  address?: string;
  port?: number;
  hostname?: string;
  host?: string;
  errors?: NetworkError[];
}

/**
 * A failed connection in words, with its address and code; undefined for any other error. Its causes are ignored.
 * `code`: if the error has none of its own.
 */
export function networkProblem(error: unknown, code = (error as NetworkError)?.code): NetworkProblem | undefined {
  // Any failed handshake has this code.
  if (code === 'EPROTO' && !/wrong version number/i.test((error as NetworkError).message ?? '')) return undefined;
  const problem = problems[String(code)]?.(whereOf(error as NetworkError) ?? 'the server');
  return problem && { ...problem, found: `${problem.found} (${code})` };
}

/** The address or host that was tried; all of them if a name has several. undici names them in its message only. */
function whereOf(error: NetworkError): string | undefined {
  const { address, port, message, errors, hostname, host = hostname } = error;
  if (errors) return [...new Set(errors.map(whereOf))].filter(Boolean).join(' and ') || undefined;
  if (address !== undefined) return `${address.includes(':') ? `[${address}]` : address}:${port}`;
  return /attempted address(?:es)?: ([^),]+)/.exec(message ?? '')?.[1] ?? host;
}

const neverConnected = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT'];

/** Whether a request certainly did not reach the server, because there was no connection: this error, or its cause. */
export function neverSent(error: unknown): boolean {
  const { code, syscall, errors, cause } = (error ?? {}) as NetworkError;
  // One error for each address of a name.
  if (errors?.length) return errors.every(neverSent);
  if (neverConnected.includes(String(code)) || syscall === 'connect') return true;
  return cause !== undefined && neverSent(cause);
}

const problem = (found: string, remedy: NetworkProblem['remedy']) => ({ found, remedy });

const silent = (where: string) =>
  problem(`${where} cannot be reached`, (setting) => `check the network, or correct ${setting}`);
const untrusted = () =>
  problem(
    'the certificate of the server is from an unknown authority',
    () => 'set NODE_EXTRA_CA_CERTS to a file with the certificate of that authority',
  );
const plain = () =>
  problem('the server does not speak TLS there', (setting) => `correct the scheme or the port in ${setting}`);

/** By code of Node.js, OpenSSL and undici. */
const problems: Record<string, (where: string) => NetworkProblem> = {
  ECONNREFUSED: (where) =>
    problem(`nothing listens at ${where}`, (setting) => `start the server there, or correct ${setting}`),
  ENOTFOUND: (where) =>
    problem(`the host name ${where} cannot be resolved`, (setting) => `correct ${setting}, or the name server`),
  EAI_AGAIN: (where) =>
    problem(
      `the host name ${where} cannot be resolved at present`,
      (setting) => `check the name server, and ${setting}`,
    ),
  ETIMEDOUT: silent,
  EHOSTDOWN: silent,
  EHOSTUNREACH: silent,
  ENETUNREACH: silent,
  UND_ERR_CONNECT_TIMEOUT: silent,
  EPROTO: plain,
  ERR_SSL_WRONG_VERSION_NUMBER: plain,
  CERT_HAS_EXPIRED: () => problem('the certificate of the server has expired', () => 'renew it'),
  ERR_TLS_CERT_ALTNAME_INVALID: (where) =>
    problem(`the certificate of the server is not for ${where}`, (setting) => `correct ${setting}, or the certificate`),
  DEPTH_ZERO_SELF_SIGNED_CERT: untrusted,
  SELF_SIGNED_CERT_IN_CHAIN: untrusted,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: untrusted,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: untrusted,
};
