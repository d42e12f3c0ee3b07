import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { secretVariables, variableNames } from '../../src/config/environment.ts';
import { read, required } from './environment.ts';

describe('.env.example', () => {
  const text = readFileSync(new URL('../../.env.example', import.meta.url), 'utf8');
  const named = [...text.matchAll(/^#?([A-Z][A-Z0-9_]+)=(.*)$/gm)].map(([, name, value]) => ({ name, value: value! }));

  it('.env.example names each variable once, and no others', () => {
    expect(named.map(({ name }) => name).sort()).toEqual(
      [...variableNames, 'ASSET_MIRROR_TOKEN', 'ASSET_MIRROR_URL'].sort(),
    );
  });

  it('.env.example leaves only the required variables empty', () => {
    expect(Object.keys(parseEnv(text)).sort()).toEqual(Object.keys(required).sort());
    expect(Object.values(parseEnv(text))).toEqual(['', '', '', '']);
  });

  it('.env.example shows the defaults', () => {
    const { instance: _, ...config } = readConfig({
      ...Object.fromEntries(named.map(({ name, value }) => [name, value])),
      ...required,
    });
    const { instance: __, ...expected } = read();
    expect(config).toEqual(expected);
    const shown = named.filter(({ value }) => value !== '').map(({ name }) => name);
    // These have no default, or one that depends on other settings.
    const without = [
      'ADMIN_TOKEN',
      'ENCRYPTION_KEYS',
      'SIGNING_KEY',
      'DATABASE_URL',
      'REDIS_URL',
      'STORAGE_URL',
      'S3_ENDPOINT',
      'S3_PUBLIC_ENDPOINT',
      'S3_REGION',
    ];
    const more = [
      'S3_STORAGE_CLASS',
      'S3_OBJECT_LOCK',
      'S3_SSE',
      'S3_SSE_KMS_KEY_ID',
      'INCLUDE_ASSET_TYPES',
      'EXCLUDE_ASSET_TYPES',
    ];
    const rest = [
      'HTTP_PROXY',
      'HTTPS_PROXY',
      'NO_PROXY',
      'METRICS_PORT',
      'METRICS_TAGS',
      'CONNECT_RETURN_ORIGINS',
      'TRUST_PROXY',
      'OTEL_EXPORTER_OTLP_ENDPOINT',
      'BANDWIDTH_LIMIT',
      'WEBHOOK_URL',
      'WEBHOOK_SECRET',
      'HEARTBEAT_URL',
      'OIDC_ISSUER',
      'OIDC_CLIENT_ID',
      'OIDC_CLIENT_SECRET',
      'OIDC_ROLES',
      'LOG_PRETTY',
    ];
    const unset = [...without, ...more, ...rest, ...Object.keys(required)];
    expect(shown.sort()).toEqual(variableNames.filter((name) => !unset.includes(name)).sort());
  });
});

describe('docs/reference/configuration.md', () => {
  const text = readFileSync(new URL('../../docs/reference/configuration.md', import.meta.url), 'utf8');
  const rows = [...text.matchAll(/^- `([A-Z][A-Z0-9_]+)` \((.*?)\): /gm)].map(([, name, value]) => ({
    name: name!,
    value: value!,
  }));

  it('docs/reference/configuration.md names each secret that can be in a file', () => {
    const [paragraph] = /- A secret can be in a file[\s\S]*?\n- /.exec(text)!;
    for (const name of secretVariables) expect(paragraph).toContain(`\`${name}\``);
  });

  it('docs/reference/configuration.md describes each variable once, and no others', () => {
    expect(rows.map(({ name }) => name).sort()).toEqual(
      [...variableNames, 'ASSET_MIRROR_TOKEN', 'ASSET_MIRROR_URL'].sort(),
    );
  });

  it('docs/reference/configuration.md shows the defaults of .env.example', () => {
    const example = readFileSync(new URL('../../.env.example', import.meta.url), 'utf8');
    // WEBHOOK_EVENTS is a long list, which the page describes in words.
    const defaults = [...example.matchAll(/^#([A-Z][A-Z0-9_]+)=(.+)$/gm)]
      .map(([, name, value]) => ({ name: name!, value: `\`${value}\`` }))
      .filter(({ name }) => name !== 'WEBHOOK_EVENTS');
    expect(rows).toEqual(expect.arrayContaining(defaults));
  });
});
