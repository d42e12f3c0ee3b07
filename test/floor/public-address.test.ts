import { describe, expect, it } from 'vitest';
import { guardAddresses, isPublic } from '../../src/floor/public-address.ts';

describe('an IP address', () => {
  const inside = {
    loopback: ['127.0.0.1', '127.8.9.1', '::1', '0:0:0:0:0:0:0:1'],
    private: ['10.0.0.1', '172.16.0.1', '172.31.255.255', '192.168.1.1', 'fc00::1', 'fd12:3456::1'],
    'link-local, as of cloud metadata': ['169.254.169.254', 'fe80::1', 'fe80::1%eth0'],
    'shared by carriers': ['100.64.0.1', '100.127.255.255'],
    'unspecified, broadcast or multicast': ['0.0.0.0', '::', '255.255.255.255', '224.0.0.1', 'ff02::1', '240.0.0.1'],
    reserved: ['192.0.2.1', '198.51.100.1', '203.0.113.1', '198.18.0.1', '2001:db8::1', '4000::1', '1::1'],
    'private IPv4 written as IPv6': [
      '::ffff:127.0.0.1',
      '::ffff:7f00:1',
      '::7f00:1',
      '::169.254.169.254',
      '::ffff:10.0.0.1',
      '64:ff9b::7f00:1',
      '2002:7f00:1::',
    ],
    'no IP address': ['', 'localhost', '127.1', '1.2.3'],
  };
  for (const [what, addresses] of Object.entries(inside)) {
    it.each(addresses)(`an address that is ${what} is not public: %s`, (address) =>
      expect(isPublic(address)).toBe(false),
    );
  }
  it.each(['1.1.1.1', '172.32.0.1', '100.128.0.1', '::ffff:8.8.8.8', '2606:4700::1111'])(
    'an address is public: %s',
    (address) => expect(isPublic(address)).toBe(true),
  );
});

describe('a host name', () => {
  const found = (addresses: string[], options: object = {}, allowed?: string) =>
    new Promise((resolve, reject) => {
      const dns = (_host: string, _options: object, done: (error: null, all: object[]) => void) =>
        done(
          null,
          addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
        );
      const guard = guardAddresses({
        allows: (host) => host === allowed,
        refusal: (where, host) => new Error(`${where} is refused; allow ${host}`),
        resolve: dns as never,
      });
      guard.lookup('files.example.com', options, (error, address) => (error ? reject(error) : resolve(address)));
    });

  it('a host name is connected to its public addresses only', async () => {
    expect(await found(['10.0.0.1', '1.1.1.1', '::1'])).toBe('1.1.1.1');
    expect(await found(['10.0.0.1', '1.1.1.1', '2606:4700::1111'], { all: true })).toEqual([
      { address: '1.1.1.1', family: 4 },
      { address: '2606:4700::1111', family: 6 },
    ]);
  });

  it('a host name with private addresses only is refused, unless it is allowed', async () => {
    await expect(found(['127.0.0.1', '::1'])).rejects.toThrow(
      'files.example.com (127.0.0.1) is refused; allow files.example.com',
    );
    await expect(found([])).rejects.toThrow('files.example.com (no address) is refused');
    expect(await found(['127.0.0.1'], {}, 'files.example.com')).toBe('127.0.0.1');
  });
});
