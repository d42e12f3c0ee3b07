import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createSealer } from '../../src/oauth/seal.ts';

const old = randomBytes(32);
const young = randomBytes(32);
const sealer = createSealer([old]);

/** All values with one character replaced. */
function* altered(text: string): Generator<string> {
  for (let i = 0; i < text.length; i++) {
    yield `${text.slice(0, i)}${text[i] === 'A' ? 'B' : 'A'}${text.slice(i + 1)}`;
  }
}

describe('a sealed value', () => {
  it('a sealed value opens to the text that was sealed, whatever it is', { tags: 'slow' }, () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string(), (plain, purpose) => {
        expect(sealer.open(purpose, sealer.seal(purpose, plain))).toBe(plain);
      }),
    );
  });

  it('a sealed value is different each time, and shows nothing of its text', () => {
    const [one, two] = [sealer.seal('p', 'the secret'), sealer.seal('p', 'the secret')];
    expect(one).not.toBe(two);
    expect(Buffer.from(one.split('.')[3]!, 'base64url').toString('latin1')).not.toContain('secret');
  });

  it('a sealed value has version, key id, nonce and ciphertext, in characters for cookies and URLs', () => {
    expect(sealer.seal('p', 'x')).toMatch(/^v1\.[0-9a-f]{8}\.[\w-]{16}\.[\w-]{23}$/);
  });

  it('a sealed value is sealed with the first key, and opens with any', () => {
    const both = createSealer([young, old]);
    expect(both.open('p', sealer.seal('p', 'before'))).toBe('before');
    const after = both.seal('p', 'after');
    expect(createSealer([young]).open('p', after)).toBe('after');
    expect(() => sealer.open('p', after)).toThrow('ENCRYPTION_KEYS');
  });

  it('a sealed value names its key in the error if that is missing', () => {
    const sealed = sealer.seal('tokens of u1', 'x');
    const id = sealed.split('.')[1]!;
    expect(() => createSealer([young]).open('tokens of u1', sealed)).toThrow(
      `cannot decrypt tokens of u1: it was encrypted with the key ${id}, which is not among ENCRYPTION_KEYS; add that key again`,
    );
  });

  it('a sealed value does not open if one of its characters was altered', () => {
    const sealed = sealer.seal('p', 'xx');
    // Two bytes and the tag are 18: each character of them counts.
    for (const other of altered(sealed)) expect(() => sealer.open('p', other), other).toThrow(/^cannot decrypt p: /);
  });

  it('a sealed value does not open for another purpose', () => {
    const sealed = sealer.seal('tokens of u1', 'x');
    expect(() => sealer.open('tokens of u2', sealed)).toThrow('the encrypted value was altered, or belongs elsewhere');
  });

  it('a sealed value of another form is reported as such', () => {
    const sealed = sealer.seal('p', 'x');
    const [version, id, nonce, text] = sealed.split('.');
    const short = Buffer.alloc(4).toString('base64url');
    for (const other of [
      '',
      'x',
      '...',
      `v2.${id}.${nonce}.${text}`,
      `${version}.${id}.${nonce}`,
      `${sealed}.more`,
      `${version}.${id}.${nonce}.${short}`,
      `${version}.${id}.!.${text}`,
      `${version}.${id}.${short}.${text}`,
    ]) {
      expect(() => sealer.open('p', other), other).toThrow(
        /^cannot decrypt p: (not an encrypted value|the encrypted value was altered)/,
      );
    }
  });

  it('sealing needs at least one key', () => {
    expect(() => createSealer([])).toThrow('at least one encryption key is needed');
  });
});

describe('a signed value', () => {
  it('a signed value returns its payload, which anyone can read', () => {
    const signed = sealer.sign('p', 'for ëveryone');
    expect(sealer.verify('p', signed)).toBe('for ëveryone');
    expect(Buffer.from(signed.split('.')[0]!, 'base64url').toString()).toBe('for ëveryone');
  });

  it('a signed value is signed with the first key, and verified with any', () => {
    const before = sealer.sign('p', 'x');
    const both = createSealer([young, old]);
    expect(both.verify('p', before)).toBe('x');
    expect(createSealer([young]).verify('p', both.sign('p', 'x'))).toBe('x');
    expect(createSealer([young]).verify('p', before)).toBeUndefined();
  });

  it('a signed value is invalid for another purpose, and if a character was altered, added or removed', () => {
    const signed = sealer.sign('p', 'payload');
    expect(sealer.verify('q', signed)).toBeUndefined();
    for (const other of [...altered(signed), `${signed}=`, `${signed} `, signed.slice(0, -1), `${signed}.x`, '', '.']) {
      expect(sealer.verify('p', other), other).toBeUndefined();
    }
  });

  it('a signed value cannot be used as a sealed value, or the reverse', () => {
    expect(sealer.verify('p', sealer.seal('p', 'x'))).toBeUndefined();
    expect(() => sealer.open('p', sealer.sign('p', 'x'))).toThrow('not an encrypted value');
  });
});
