import { readFile } from 'node:fs/promises';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, LookupFunction } from 'node:net';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { RetryLater } from '../../src/floor/errors.ts';
import { LibraryClient } from '../../src/source/client.ts';
import { createAgent, isTemporary } from '../../src/source/http.ts';
import { newCertificates } from '../support/certificates.ts';
import { freePort } from '../support/ports.ts';
import { answer, hangUp, raw } from './bare.ts';
import { newClientGround, signal } from './client-ground.ts';
import { failureOf } from './failure-of.ts';

const ground = await newClientGround();
const { agent, admin, bare, token, client, odd } = ground;
afterEach(ground.reset);
afterAll(ground.close);

describe('a library that asks the client to wait', () => {
  const read = () => failureOf(client().me({ token, signal }));

  it('429 or 503 with Retry-After, in seconds or as a date, makes the client wait', async () => {
    for (const status of [429, 503]) {
      const began = Date.now();
      for (const retryAfter of [60, new Date(began + 61_000).toUTCString()]) {
        await admin.setFaults({ endpoint: 'me', status, retryAfter });
        await admin.clearRequests();
        const error = await read();
        expect(error).toBeInstanceOf(RetryLater);
        expect(error.scope).toBe('connection');
        // Meanwhile the date has come closer.
        expect(error.waitMs).toBeGreaterThan(59_000 - (Date.now() - began));
        expect(error.waitMs).toBeLessThan(75_000);
        expect(await admin.requests({ endpoint: 'me' })).toHaveLength(1);
      }
    }
  });

  it('429 without Retry-After makes the client wait for a default time', async () => {
    await admin.setFaults({ endpoint: 'me', status: 429 });
    const error = await read();
    expect(error).toBeInstanceOf(RetryLater);
    expect(error.waitMs).toBeGreaterThan(20_000);
  });
});

describe('a temporary error', () => {
  const tries = async () => (await admin.requests({ endpoint: 'me' })).length;

  it('a temporary error such as 5xx or a dropped connection is retried', { tags: 'slow' }, async () => {
    for (const fault of [{ status: 500 }, { status: 503 }, { dropAnswer: true }, { cutAfter: 5 }]) {
      await admin.setFaults({ endpoint: 'me', times: 2, ...fault });
      await admin.clearRequests();
      expect((await client().me({ token, signal })).user.id).toBe('usr_ada');
      expect(await tries()).toBe(3);
    }
  });

  it('a connection that closes within a chunk is retried', async () => {
    bare.answer(raw('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n9\r\n{"us'));
    expect(isTemporary(await failureOf(odd().me({ token, signal })))).toBe(true);
    expect(bare.requests).toHaveLength(3);
  });

  it('a temporary error that persists is reported after three tries', { tags: 'slow' }, async () => {
    await admin.setFaults({ endpoint: 'me', status: 502 });
    await admin.clearRequests();
    const error = await failureOf(client().me({ token, signal }));
    expect(error).toMatchObject({ name: 'HttpError', status: 502 });
    expect(isTemporary(error)).toBe(true);
    expect(await tries()).toBe(3);
    bare.answer(hangUp);
    expect(isTemporary(await failureOf(odd().me({ token, signal })))).toBe(true);
    expect(bare.requests).toHaveLength(3);
  });

  it('a request is not retried after a 4xx or an invalid answer', async () => {
    for (const body of ['<html>', '', '{"user":', '\ufeff']) {
      bare.answer(answer(200, body));
      expect((await failureOf(odd().me({ token, signal }))).message).toBe("read /me: the library's answer is not JSON");
      expect(bare.requests).toHaveLength(1);
    }
    for (const status of [302, 400, 401, 403, 404]) {
      bare.answer(answer(status, ''));
      expect(await failureOf(odd().me({ token, signal }))).toMatchObject({ status });
      expect(bare.requests).toHaveLength(1);
    }
  });

  it('a network error is reported as such if nothing listens', async () => {
    const nobody = new LibraryClient({ apiUrl: `http://127.0.0.1:${await freePort()}`, dispatcher: agent });
    expect(isTemporary(await failureOf(nobody.me({ token, signal })))).toBe(true);
  });

  it('a name server that does not answer is a temporary error', async () => {
    let lookups = 0;
    const lookup: LookupFunction = (_host, _options, done) => {
      lookups++;
      done(Object.assign(new Error('getaddrinfo EAI_AGAIN library.example'), { code: 'EAI_AGAIN' }), '');
    };
    const away = new LibraryClient({
      apiUrl: 'http://library.example',
      dispatcher: createAgent({ connections: 1, lookup }),
    });
    expect(isTemporary(await failureOf(away.me({ token, signal })))).toBe(true);
    expect(lookups).toBe(3);
  });

  it('a certificate that cannot be trusted at present is a temporary error', async () => {
    const { cert, key, clear } = await newCertificates();
    const server = createTlsServer({ cert: await readFile(cert), key: await readFile(key) }, () => {});
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const apiUrl = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const error = await failureOf(new LibraryClient({ apiUrl, dispatcher: agent }).me({ token, signal }));
    expect(error).toMatchObject({ code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE' });
    expect(isTemporary(error)).toBe(true);
    server.close();
    await clear();
  });
});
