import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  ConfigurationError,
  Disconnected,
  namingSetting,
  Rejected,
  RetryLater,
  reasonOf,
  redact,
  retryAfter,
} from '../../src/floor/errors.ts';
import { growth } from '../support/growth.ts';
import { why } from '../support/reasons.ts';

describe('errors of asset-mirror', () => {
  it('an error of asset-mirror has a name, and keeps its cause', () => {
    const cause = new Error('why');
    expect(new Disconnected('x').name).toBe('Disconnected');
    expect(new Rejected({ code: 'empty' }, { cause }).cause).toBe(cause);
    expect(new RetryLater(why, 5, { cause })).toMatchObject({ waitMs: 5, scope: 'asset', cause });
    expect(new ConfigurationError(['One.', 'Two.'])).toMatchObject({
      message: 'One.\nTwo.',
      problems: ['One.', 'Two.'],
    });
  });
});

const refusedBy = (address: string) =>
  Object.assign(new Error(`connect ECONNREFUSED ${address}:80`), { code: 'ECONNREFUSED', address, port: 80 });

describe('the reason of an error', () => {
  const cases: [string, unknown, string][] = [
    ['is its message', new Error('no space'), 'no space'],
    ['has the causes behind it', new Error('store part 7', { cause: new Error('reset') }), 'store part 7: reset'],
    ['has each text once', new Error('read: reset', { cause: new Error('reset') }), 'read: reset'],
    ['is its name when there is no message', new TypeError(), 'TypeError'],
    ['is the text that was thrown', 'plain text', 'plain text'],
    ['has each error of several', new AggregateError([new Error('one'), new Error('two')]), 'one, two'],
    ['says where nothing listens', refusedBy('::1'), 'nothing listens at [::1]:80 (ECONNREFUSED)'],
    [
      'says which addresses of a name were tried',
      Object.assign(new AggregateError([refusedBy('::1'), refusedBy('127.0.0.1')]), { code: 'ECONNREFUSED' }),
      'nothing listens at [::1]:80 and 127.0.0.1:80 (ECONNREFUSED)',
    ],
    [
      'says which host was silent',
      Object.assign(new Error('Connect Timeout Error (attempted address: h.example:443, timeout: 10000ms)'), {
        code: 'UND_ERR_CONNECT_TIMEOUT',
      }),
      'h.example:443 cannot be reached (UND_ERR_CONNECT_TIMEOUT)',
    ],
    [
      'names the setting with the address, and what to do',
      new Error('list it', { cause: namingSetting(refusedBy('127.0.0.1'), 'LIBRARY_API_URL') }),
      'list it: nothing listens at 127.0.0.1:80 (ECONNREFUSED); start the server there, or correct LIBRARY_API_URL',
    ],
    ['names no setting for another error', namingSetting(new Error('no space'), 'LIBRARY_API_URL'), 'no space'],
    ['is never empty', undefined, 'unknown error'],
    ['has no token', new Error('refused svca_abc', { cause: 'Bearer abc' }), 'refused svc*_…: Bearer …'],
  ];
  for (const [sentence, error, reason] of cases)
    it(`the reason of an error ${sentence}`, () => expect(reasonOf(error)).toBe(reason));

  it('the reason of an error stays short, and loses a secret that lies across the cut', () => {
    const reason = reasonOf(new Error(`${'x'.repeat(480)} svcr_${'s'.repeat(100)}`));
    expect(reason.length).toBeLessThanOrEqual(500);
    expect(reason).not.toContain('svcr_s');
  });

  it('the reason of an error that is its own cause ends', () => {
    const error = new Error('loop');
    error.cause = error;
    expect(reasonOf(error)).toBe('loop');
  });
});

describe('redacted text', () => {
  const cases: [string, string, string][] = [
    ['loses access tokens', 'token svca_a-b_c.d~e+f/g=h!', 'token svc*_…!'],
    ['loses a token that hangs on a word', 'refresh_svcr_abc', 'refresh_svc*_…'],
    ['loses Bearer tokens', 'authorization: Bearer abc.def', 'authorization: Bearer …'],
    ['loses Basic credentials', 'authorization: basic YTpi==', 'authorization: basic …'],
    ['loses the query of a link', 'GET https://h/p?signature=s&e=1 now', 'GET https://h/p?… now'],
    ['loses the fragment of a link', 'https://h/p#access', 'https://h/p?…'],
    ['loses the query of any address', 'postgres://db/x?password=p', 'postgres://db/x?…'],
    ['loses credentials in an address', 'redis://:pass@host:1/0', 'redis://…@host:1/0'],
    ['loses a password with an @', 'postgres://me:p@ss@host/x', 'postgres://…@host/x'],
    ['loses credentials and query of one link', 'https://u:p@h/p?q=1', 'https://…@h/p?…'],
    ['loses the query of each of several links', 'https://h/a?s=1, "https://h/b?s=2"', 'https://h/a?… "https://h/b?…"'],
    [
      'keeps ordinary words',
      'asset a?b of me@example.com: 50% (http) ok',
      'asset a?b of me@example.com: 50% (http) ok',
    ],
  ];
  for (const [sentence, before, after] of cases)
    it(`redacted text ${sentence}`, () => expect(redact(before)).toBe(after));

  it('redacted text has no token and no signature, whatever is around them', () => {
    const around = fc.string({ maxLength: 20 }).map((s) => s.replaceAll(/[\w@]/g, ''));
    fc.assert(
      fc.property(around, around, (before, after) => {
        expect(redact(`${before}svcr_secretsecret${after}`)).not.toContain('secretsecret');
        expect(redact(`${before} https://h/p?signature=secretsecret ${after}`)).not.toContain('secretsecret');
      }),
    );
  });

  it.each(['a-', 'a://', 'a://b@', '://', 'Bearer ', '?', 'https://h/?q '])(
    'text is redacted in a time that grows with its length, also if it is all %j',
    (part) => {
      const text = (length: number) => part.repeat(length / part.length);
      expect(growth(text, redact)).toBeLessThan(24);
    },
  );

  it('redacted text does not change when it is redacted again', () => {
    const once = redact('svca_x Bearer y https://u:p@h/p?q');
    expect(redact(once)).toBe(once);
  });
});

describe('Retry-After', () => {
  // A date is compared with the time at which it is read.
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['Date'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const seconds = (header: unknown) => {
    const wait = retryAfter(header);
    return wait && wait.waitMs / 1000;
  };

  it('Retry-After may be seconds or a date, and the wait is never shorter', () => {
    for (const header of ['120', ' 120 ', new Date(Date.now() + 121_000).toUTCString()]) {
      expect(seconds(header)).toBeGreaterThanOrEqual(120);
      expect(seconds(header)).toBeLessThan(140);
    }
  });

  it('Retry-After may be a date in each format of HTTP, always in GMT', () => {
    const now = new Date(Date.now() + 121_000);
    const [day, date, month, year, time] = now.toUTCString().replace(',', '').split(' ') as string[];
    const dates = [
      now.toUTCString(),
      `${day}day, ${date}-${month}-${year!.slice(2)} ${time} GMT`,
      `${day} ${month} ${Number(date)} ${time} ${year}`,
    ];
    for (const header of dates) {
      expect(seconds(header), header).toBeGreaterThanOrEqual(119);
      expect(seconds(header), header).toBeLessThan(140);
    }
  });

  it('Retry-After as a date is read by the clock of the server that sent it', () => {
    const theirs = Date.now() - 3_000_000;
    const { waitMs } = retryAfter(new Date(theirs + 60_000).toUTCString(), new Date(theirs).toUTCString())!;
    expect(waitMs).toBeGreaterThanOrEqual(60_000);
    expect(waitMs).toBeLessThan(80_000);
  });

  it('a very long Retry-After is reported, and shortened to an hour', () => {
    const wait = retryAfter(3_600_000)!;
    expect(wait.asked).toEqual({ askedMs: 3_600_000_000, retryInMs: 3_600_000 });
    expect(wait.waitMs).toBeLessThan(3_611_000);
    expect(retryAfter(20)!.asked).toEqual({ askedMs: 20_000 });
  });

  it('Retry-After of any text never gives an invalid wait, or a shorter one than it says', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.integer().map(String), fc.double().map(String)), (header) => {
        const waits = seconds(header);
        if (waits === undefined) return;
        expect(waits).toBeGreaterThanOrEqual(Math.min(Number(header), 3600));
        expect(waits).toBeLessThan(3611);
      }),
    );
  });

  it('Retry-After in the past means now, and the wait is at most an hour', () => {
    for (const header of ['0', 'Wed, 21 Oct 2015 07:28:00 GMT']) {
      expect(seconds(header)).toBeGreaterThan(0);
      expect(seconds(header)).toBeLessThan(2);
    }
    expect(seconds('99999999999')).toBeLessThan(3600 + 11);
  });

  it('an invalid Retry-After gives no wait', () => {
    for (const header of [undefined, '', 'soon', 'NaN', '-5', '1e9', '0x10', '5 seconds', '2015-10-21', 'Wed, never'])
      expect(retryAfter(header)).toBeUndefined();
  });
});
