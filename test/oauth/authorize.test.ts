import { createHash, randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type Attempt,
  beginAttempt,
  openAttempt,
  readConnectLink,
  sealAttempt,
  signConnectLink,
} from '../../src/oauth/authorize.ts';
import { OAuthClient, OAuthError } from '../../src/oauth/client.ts';
import { createSealer } from '../../src/oauth/seal.ts';
import { type Library, REDIRECT_URI, startTestLibrary } from '../support/library.ts';

const [old, young] = [randomBytes(32), randomBytes(32)];
const sealer = createSealer([old]);
const minute = 60_000;
const madeAt = new Date(Date.now());
afterEach(() => vi.useRealTimers());

function later(ms: number): void {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + ms });
}

describe('a connect link', () => {
  it('a connect link says what was signed', () => {
    const expiresAt = new Date(Date.now() + minute);
    for (const more of [{ connectionId: 'c1' }, { returnUrl: 'https://agency.example/é?a=1' }, {}]) {
      const link = { ...more, madeAt, expiresAt };
      expect(readConnectLink(sealer, signConnectLink(sealer, link))).toEqual(link);
    }
  });

  it('a connect link is invalid if it was altered, was signed for another purpose, or is any other text', () => {
    const link = signConnectLink(sealer, { connectionId: 'c1', madeAt, expiresAt: new Date(Date.now() + minute) });
    const [body, signature] = link.split('.') as [string, string];
    const forged = Buffer.from(JSON.stringify({ c: 'c2', e: Date.now() + 1e9 })).toString('base64url');
    const elsewhere = sealer.sign('something else', Buffer.from(body, 'base64url').toString());
    for (const other of [`${forged}.${signature}`, elsewhere, body, `${body}.`, '', 'x.y', `${link}a`]) {
      expect(readConnectLink(sealer, other), other).toBeUndefined();
    }
  });

  it('a connect link stays valid after a key rotation while its key is still known', () => {
    const link = signConnectLink(sealer, { madeAt, expiresAt: new Date(Date.now() + minute) });
    expect(readConnectLink(createSealer([young, old]), link)).toMatchObject({ connectionId: undefined });
    expect(readConnectLink(createSealer([young]), link)).toBeUndefined();
  });
});

describe('a connect attempt', () => {
  const options = {
    appUrl: 'https://app.example.com/base/',
    clientId: 'the id',
    redirectUri: REDIRECT_URI,
    link: 'link',
  };

  it('a connect attempt sends the PKCE S256 challenge and a state, and no secret', () => {
    const { attempt, url } = beginAttempt(options);
    const { origin, pathname, searchParams } = new URL(url);
    expect(origin + pathname).toBe('https://app.example.com/base/oauth/authorize');
    expect(Object.fromEntries(searchParams)).toEqual({
      response_type: 'code',
      client_id: 'the id',
      redirect_uri: REDIRECT_URI,
      state: attempt.state,
      code_challenge: createHash('sha256').update(attempt.verifier).digest('base64url'),
      code_challenge_method: 'S256',
    });
    expect(url).not.toContain(attempt.verifier);
    expect(attempt.link).toBe('link');
  });

  it('a connect attempt has a new verifier of 43 to 128 URL-safe characters and a new random state each time', () => {
    const attempts = Array.from({ length: 50 }, () => beginAttempt(options).attempt);
    for (const { verifier, state } of attempts) {
      expect(verifier).toMatch(/^[\w.~-]{43,128}$/);
      expect(state).toMatch(/^[\w-]{32,}$/);
    }
    expect(new Set(attempts.flatMap(({ verifier, state }) => [verifier, state])).size).toBe(100);
  });

  it('a connect attempt is opened with its state and the cookie of the browser that began it', () => {
    const { attempt } = beginAttempt(options);
    expect(openAttempt(sealer, sealAttempt(sealer, attempt), attempt.state)).toEqual(attempt);
  });

  it('a connect attempt does not show its verifier in the cookie', () => {
    const { attempt } = beginAttempt(options);
    const cookie = sealAttempt(sealer, attempt);
    for (const part of cookie.split('.')) {
      expect(part).not.toContain(attempt.verifier);
      expect(Buffer.from(part, 'base64url').toString('latin1')).not.toContain(attempt.verifier);
    }
    expect(cookie).toMatch(/^[\w.-]+$/);
    expect(cookie.length).toBeLessThan(4000);
  });

  it('a connect attempt is not opened with another state, cookie, purpose or key', () => {
    const [one, two] = [beginAttempt(options).attempt, beginAttempt(options).attempt];
    const cookie = sealAttempt(sealer, one);
    for (const state of [two.state, '', `${one.state}x`, one.state.slice(1), one.state.toLowerCase(), 'é'.repeat(16)]) {
      expect(openAttempt(sealer, cookie, state)).toBeUndefined();
    }
    for (const other of [
      sealAttempt(sealer, two),
      sealer.seal('tokens of u1', JSON.stringify(one)),
      sealAttempt(createSealer([young]), one),
      `${cookie}x`,
      '',
      'v1.x.y.z',
    ]) {
      expect(openAttempt(sealer, other, one.state)).toBeUndefined();
    }
  });

  it('a connect attempt ends after an hour', () => {
    const { attempt } = beginAttempt(options);
    const cookie = sealAttempt(sealer, attempt);
    later(59 * minute);
    expect(openAttempt(sealer, cookie, attempt.state)).toEqual(attempt);
    later(2 * minute);
    expect(openAttempt(sealer, cookie, attempt.state)).toBeUndefined();
  });
});

describe('the consent page of the library', () => {
  let library: Library;
  beforeAll(async () => ({ library } = await startTestLibrary()));
  afterAll(() => library.close());

  async function comeBack(url: string): Promise<URLSearchParams> {
    const answer = await fetch(url, { redirect: 'manual' });
    return new URL(answer.headers.get('location')!).searchParams;
  }

  it('a connect attempt returns with its state and a code that only its verifier exchanges for tokens', async () => {
    const begin = () =>
      beginAttempt({
        appUrl: library.appUrl,
        clientId: library.clientId,
        redirectUri: REDIRECT_URI,
        link: 'link',
      });
    const client = new OAuthClient(library);
    const exchange = (attempt: Attempt, code: string) =>
      client.exchangeCode({ code, redirectUri: REDIRECT_URI, verifier: attempt.verifier });

    const { attempt, url } = begin();
    const back = await comeBack(url);
    expect(back.get('state')).toBe(attempt.state);
    const refused = await exchange(begin().attempt, back.get('code')!).catch((error) => error);
    expect(refused).toBeInstanceOf(OAuthError);
    expect(refused).toMatchObject({ status: 400, code: 'invalid_grant' });

    const grant = await exchange(attempt, (await comeBack(url)).get('code')!);
    expect(grant).toMatchObject({
      accessToken: expect.stringMatching(/^svca_/),
      refreshToken: expect.stringMatching(/^svcr_/),
    });
  });
});
