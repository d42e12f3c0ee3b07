import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readClientConfig } from '../../src/config/config.ts';
import { problemsOf } from './environment.ts';

describe('a command that talks to a running service', () => {
  it('a command finds the service at its default address without any setting', () => {
    expect(readClientConfig({})).toEqual({
      url: 'http://127.0.0.1:8080',
      adminToken: undefined,
      dataDir: resolve('data'),
    });
  });

  it('a command uses ASSET_MIRROR_URL, or else HOST and PORT', () => {
    expect(readClientConfig({ ASSET_MIRROR_URL: 'https://m.example.com/' }).url).toBe('https://m.example.com');
    expect(readClientConfig({ HOST: '0.0.0.0', PORT: '81' }).url).toBe('http://127.0.0.1:81');
    expect(readClientConfig({ HOST: '::', PORT: '81' }).url).toBe('http://[::1]:81');
  });

  it('a command refuses an invalid address or port', () => {
    expect(problemsOf({ ASSET_MIRROR_URL: 'm', PORT: 'x' }, readClientConfig)).toHaveLength(2);
  });
});
