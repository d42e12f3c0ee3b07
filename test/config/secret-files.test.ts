import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readClientConfig, readConfig } from '../../src/config/config.ts';
import { secretVariables } from '../../src/config/environment.ts';
import { key, problemsOf, required } from './environment.ts';

describe('secrets in files', () => {
  const directory = mkdtempSync(join(tmpdir(), 'asset-mirror-secrets-'));
  afterAll(() => rmSync(directory, { recursive: true }));
  const file = (text: string) => {
    const path = join(directory, randomBytes(8).toString('hex'));
    writeFileSync(path, text);
    return path;
  };
  const secrets = {
    DATABASE_URL: 'postgres://u:p@h/d',
    REDIS_URL: 'redis://:p@h',
    LIBRARY_CLIENT_SECRET: 'the secret',
    ENCRYPTION_KEYS: key(1).toString('base64'),
    SIGNING_KEY: key(3).toString('base64'),
    ADMIN_TOKEN: 'a-token-of-24-characters',
    HTTP_PROXY: 'http://p',
    HTTPS_PROXY: 'http://u:p@p',
    WEBHOOK_URL: 'https://h/hook',
    WEBHOOK_SECRET: `whsec_${key(2).toString('base64')}`,
    HEARTBEAT_URL: 'https://h/ping',
    OIDC_CLIENT_SECRET: 'the client secret',
  };

  it('a secret in a file is read as if its variable had it, without the line end', () => {
    expect(Object.keys(secrets).sort()).toEqual([...secretVariables].sort());
    const inFiles = Object.entries(secrets).map(([name, value]) => [`${name}_FILE`, `${file(`${value}\n`)}`]);
    const { LIBRARY_CLIENT_SECRET: _, ...rest } = required;
    const others = { ...rest, OIDC_ISSUER: 'https://h', OIDC_CLIENT_ID: 'x', OIDC_ROLES: 'admin:x' };
    const { instance: __, ...config } = readConfig({ ...others, ...Object.fromEntries(inFiles) }, { embedded: false });
    const { instance: ___, ...expected } = readConfig({ ...others, ...secrets }, { embedded: false });
    expect(config).toEqual(expected);
  });

  it('a secret in a file makes the same other variables required', () => {
    const DATABASE_URL_FILE = file(secrets.DATABASE_URL);
    expect(problemsOf({ ...required, DATABASE_URL_FILE }).map((problem) => problem.split(' ', 1)[0])).toEqual([
      'ENCRYPTION_KEYS',
      'ADMIN_TOKEN',
    ]);
  });

  it('commands that talk to a service read the secret files that they need, and no others', () => {
    const environment = { ADMIN_TOKEN_FILE: file(secrets.ADMIN_TOKEN), DATABASE_URL_FILE: '/none' };
    expect(readClientConfig(environment).token).toBe(secrets.ADMIN_TOKEN);
    const ASSET_MIRROR_TOKEN_FILE = file('am_token');
    expect(readClientConfig({ ...environment, ASSET_MIRROR_TOKEN_FILE }).token).toBe('am_token');
  });

  it('a secret file that is unreadable, wrong or set twice is reported without its content', () => {
    const [ADMIN_TOKEN_FILE, REDIS_URL_FILE] = [file('hunter2'), file('redis://h')];
    const LIBRARY_CLIENT_SECRET_FILE = join(directory, 'none');
    const { LIBRARY_CLIENT_SECRET: _, ...others } = required;
    const more = { ADMIN_TOKEN_FILE, REDIS_URL_FILE, REDIS_URL: 'redis://h', LIBRARY_CLIENT_SECRET_FILE, PORT: 'x' };
    expect(problemsOf({ ...others, ...more })).toEqual([
      `LIBRARY_CLIENT_SECRET_FILE is ${JSON.stringify(LIBRARY_CLIENT_SECRET_FILE)} (ENOENT); expected a file that this account can read.`,
      'REDIS_URL and REDIS_URL_FILE are both set; expected one of them.',
      expect.stringMatching(/^PORT is "x"/),
      expect.stringMatching(/^ADMIN_TOKEN is set to something else \(7 characters, not shown\)/),
    ]);
  });

  it('a file is not read for a variable that is no secret', () => {
    expect(problemsOf({ ...required, LIBRARY_CLIENT_ID: '', LIBRARY_CLIENT_ID_FILE: file('x') })).toHaveLength(1);
  });
});
