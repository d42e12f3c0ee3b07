import { Writable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import pg from 'pg';
import type { Logger } from 'pino';
import { describe, expect, it } from 'vitest';
import { createLog } from '../../src/floor/log.ts';

const secrets = {
  accessToken: 'svca_Zm9vYmFyYmF6cXV4',
  refreshToken: 'svcr_Zm9vYmFyYmF6cXV4',
  clientSecret: 'svcs_Zm9vYmFyYmF6cXV4',
  code: 'svcc_Zm9vYmFyYmF6cXV4',
};
const signature = 'c2lnbmF0dXJlLW9mLWEtbGluaw';
const link = `https://media.example.com/a/1?expires=1&signature=${signature}`;

/** All that pino accepts, also what the type `Log` forbids. */
type Log = Logger;

/** What a log writes, as text. */
function logged(write: (log: Log) => void, options: { level?: string; pretty?: boolean } = {}): string {
  let text = '';
  const destination = new Writable({
    write(chunk, _encoding, done) {
      text += chunk;
      done();
    },
  });
  write(createLog({ level: options.level ?? 'trace', pretty: options.pretty ?? false, destination }) as Log);
  return text;
}

const line = (write: (log: Log) => void) => JSON.parse(logged(write));

describe('a log line', () => {
  it('a log line is one JSON object with level, time, process, data and message', () => {
    const found = line((log) =>
      log.info({ event: 'asset.mirrored', assetId: 'a1', bytes: 5, ms: 12 }, 'asset mirrored'),
    );
    expect(found).toEqual({
      level: 'info',
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      pid: process.pid,
      event: 'asset.mirrored',
      assetId: 'a1',
      bytes: 5,
      ms: 12,
      msg: 'asset mirrored',
    });
  });

  it('a log line of a broken database connection has the error without the client', () => {
    const client = new pg.Client({ connectionString: 'postgres://mirror:a-password@127.0.0.1:1/mirror' });
    const err = Object.assign(new Error('terminated'), { code: '57P01', client });
    const found = line((log) => log.warn({ event: 'database.connection_lost', err }, 'database connection lost'));
    expect(found.err).toMatchObject({ message: 'terminated', code: '57P01' });
    expect(found.err).not.toHaveProperty('client');
  });

  it('a log line of a refused signature has no session token', () => {
    const token = 'a+session/token=';
    const answer = {
      Code: 'SignatureDoesNotMatch',
      CanonicalRequest: `PUT\n/key\n\nx-amz-security-token:${token}\n`,
      CanonicalRequestBytes: Buffer.from(token).toString('hex'),
      'Token-0': token,
    };
    const err = Object.assign(new Error('refused'), { cause: Object.assign(new Error('does not match'), answer) });
    const text = logged((log) => log.warn({ event: 'bucket.failed', err }, 'bucket failed'));
    expect(text).toContain('SignatureDoesNotMatch');
    expect(text).not.toContain(token);
    expect(text).not.toContain(answer.CanonicalRequestBytes);
  });

  it('a log line below the level is not written', () => {
    expect(logged((log) => log.debug('quiet'), { level: 'info' })).toBe('');
    expect(logged((log) => log.fatal('quiet'), { level: 'silent' })).toBe('');
  });

  it('a log line keeps dates, arrays, numbers, null and the fields of nested objects as they are', () => {
    const at = new Date(0);
    const data = { until: at, list: [1, 'two', { three: 3 }], none: null, nested: { flag: true, count: 0 } };
    expect(line((log) => log.info(data, 'x'))).toMatchObject({ ...data, until: at.toISOString() });
  });

  it('a log line has the type, message, code, stack and causes of an error', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    const found = line((log) => log.warn({ err: new TypeError('store part 7', { cause }) }, 'failed')).err;
    expect(found).toMatchObject({
      type: 'TypeError',
      message: expect.stringContaining('store part 7'),
      stack: expect.stringContaining('log.test.ts'),
      cause: { message: 'connect ECONNREFUSED', code: 'ECONNREFUSED' },
    });
  });

  it('a log line has the errors of an AggregateError as a list', () => {
    const err = new AggregateError([new Error('first'), new Error(`second ${secrets.accessToken}`)], 'both');
    const text = logged((log) => log.warn({ err }, 'x'));
    expect(JSON.parse(text).err.aggregateErrors).toMatchObject([{ message: 'first' }, { message: 'second svc*_…' }]);
    expect(text).not.toContain(secrets.accessToken);
  });

  it('a log line of an object that contains itself ends', () => {
    const loop: Record<string, unknown> = { name: 'loop' };
    loop.self = loop;
    expect(line((log) => log.info({ loop }, 'x')).loop.name).toBe('loop');
  });
});

describe('secrets in the log', () => {
  const all = [...Object.values(secrets), signature, 'YXBwOnN2Y3M', 'hunter2'];
  const text = `${Object.values(secrets).join(' ')} ${link} Basic YXBwOnN2Y3M= Bearer YXBwOnN2Y3M postgres://me:hunter2@db/x`;
  const wrapped = new Error('outer', { cause: new Error('middle', { cause: new Error(text) }) });
  const withFields = Object.assign(new Error('request failed'), {
    request: { headers: { authorization: 'Basic YXBwOnN2Y3M=' }, url: link },
    input: link,
  });

  const ways: [string, (log: Log) => void][] = [
    ['in the message', (log) => log.info(text)],
    ['in the message after data', (log) => log.info({ assetId: 'a' }, text)],
    ['in the arguments of a message', (log) => log.info('%s, and %s', text, text)],
    ['in a field', (log) => log.info({ reason: text }, 'x')],
    ['in a nested field', (log) => log.info({ a: { b: { c: [{ d: text }] } } }, 'x')],
    ['in a deeply nested field', (log) => log.info({ a: { b: { c: { d: { e: { f: { g: { h: text } } } } } } } }, 'x')],
    ['in an error as the only argument', (log) => log.error(new Error(text))],
    ['in an error', (log) => log.error({ err: new Error(text) }, 'x')],
    ['in an error without a message of its own', (log) => log.error({ err: new Error(text) })],
    ['in an error under another name', (log) => log.error({ problem: new Error(text), list: [wrapped] }, 'x')],
    ['in the causes of an error', (log) => log.error({ err: wrapped }, 'x')],
    ['in a cause that is only text', (log) => log.error({ err: new Error('outer', { cause: text }) }, 'x')],
    ['in the fields of an error', (log) => log.error({ err: withFields }, 'x')],
    ['in a URL', (log) => log.info({ address: new URL(link) }, 'x')],
    ['in bytes', (log) => log.info({ body: Buffer.from(text) }, 'x')],
  ];
  for (const [where, write] of ways) {
    it(`a log line has no secret ${where}`, () => {
      for (const pretty of [false, true]) {
        const written = logged(write, { pretty });
        expect(written).not.toBe('');
        for (const secret of all) expect(written).not.toContain(secret);
      }
    });
  }

  it('a log line hides fields whose name says that they are secret, at any depth', () => {
    const names = [
      'authorization',
      'Authorization',
      'cookie',
      'set-cookie',
      'password',
      'clientSecret',
      'client_secret',
    ];
    const more = ['token', 'tokens', 'accessToken', 'access_token', 'refreshToken', 'adminToken', 'verifier'];
    for (const name of [...names, ...more, 'url', 'mp4Url', 'thumbnailUrl']) {
      for (const data of [{ [name]: 'plain' }, { a: { b: { [name]: ['plain'] } } }]) {
        expect(logged((log) => log.info(data, 'x'))).not.toContain('plain');
      }
    }
    expect(line((log) => log.info({ tokenVersion: 3, tokens: 2 }, 'x'))).toMatchObject({ tokenVersion: 3, tokens: 2 });
  });

  it('a log line keeps the text around a secret readable', () => {
    expect(line((log) => log.info(`GET ${link} failed`)).msg).toBe('GET https://media.example.com/a/1?… failed');
    expect(line((log) => log.info('postgres://me:hunter2@db/x is away')).msg).toBe('postgres://…@db/x is away');
  });
});

describe('pretty', () => {
  it('LOG_PRETTY writes lines for people: date and time, level, message, and the data below', () => {
    const text = stripVTControlCharacters(
      logged((log) => log.warn({ assetId: 'a1', err: new Error('no space') }, 'asset failed'), { pretty: true }),
    );
    expect(text).toMatch(/^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] WARN: asset failed\n/);
    expect(text).toContain('assetId: "a1"');
    expect(text).toContain('no space');
    expect(text).not.toContain('"pid"');
  });

  it('LOG_PRETTY writes no control characters from the library', () => {
    const hostile = 'a\u001b[2J\u009b2J\u202e\u2028b';
    const err = new Error(hostile, { cause: new Error(hostile) });
    const text = stripVTControlCharacters(
      logged((log) => log.warn({ companyId: hostile, of: [{ hostile }], err }, hostile), { pretty: true }),
    );
    expect(text.match(/[^\P{Cc}\n]|[\p{Zl}\p{Zp}\p{Bidi_Control}]/gu)).toBeNull();
    expect(text).toContain('\\u{9b}2J');
  });
});
