import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { S3Server } from './services.ts';

/**
 * The workload identity of a cluster: a file with a token, and a service that exchanges it for credentials (STS,
 * AssumeRoleWithWebIdentity). It knows one role and one token; the credentials are the store's own, without a session.
 * `environment` has the variables that a cloud sets in a pod.
 */
export async function newTokenService({ accessKey, secretKey, region }: S3Server) {
  const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-token-'));
  const [file, token, role] = [
    join(directory, 'token'),
    'the token of the workload',
    'arn:aws:iam::123456789012:role/mirror',
  ];
  await writeFile(file, token);
  let asked = 0;
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    const form = new URLSearchParams(body);
    const known = form.get('WebIdentityToken') === token && form.get('RoleArn') === role;
    if (form.get('Action') !== 'AssumeRoleWithWebIdentity' || !known) {
      response.writeHead(403).end();
      return;
    }
    asked++;
    response.writeHead(200, { 'content-type': 'text/xml' }).end(`
      <AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
        <Credentials>
          <AccessKeyId>${accessKey}</AccessKeyId><SecretAccessKey>${secretKey}</SecretAccessKey>
          <SessionToken></SessionToken>
          <Expiration>${new Date(Date.now() + 3_600_000).toISOString()}</Expiration>
        </Credentials>
      </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    environment: {
      AWS_ROLE_ARN: role,
      AWS_WEB_IDENTITY_TOKEN_FILE: file,
      AWS_REGION: region,
      AWS_ENDPOINT_URL_STS: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    },
    asked: () => asked,
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rm(directory, { recursive: true, force: true });
    },
  };
}
