import { execFile } from 'node:child_process';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const openssl = (...args: string[]) => promisify(execFile)('openssl', args);

/** A private certificate authority, and a certificate of it for the loopback. `ca` is for NODE_EXTRA_CA_CERTS. */
export async function newCertificates() {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-certificates-'));
  await chmod(directory, 0o755);
  const file = (name: string) => join(directory, name);
  const [ca, caKey, cert, key, request] = ['ca.crt', 'ca.key', 'server.crt', 'server.key', 'server.csr'].map(file);
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  await openssl('req', '-x509', ...newKey, '-keyout', caKey!, '-out', ca!, '-days', '2', '-subj', '/CN=A private CA');
  await openssl('req', ...newKey, '-keyout', key!, '-out', request!, '-subj', '/CN=localhost');
  await writeFile(file('names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1');
  const sign = ['-CA', ca!, '-CAkey', caKey!, '-CAcreateserial', '-days', '2', '-extfile', file('names')];
  await openssl('x509', '-req', '-in', request!, '-out', cert!, ...sign);
  return { ca: ca!, cert: cert!, key: key!, clear: () => rm(directory, { recursive: true, force: true }) };
}

export type Certificates = Awaited<ReturnType<typeof newCertificates>>;
