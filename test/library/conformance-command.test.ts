import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Library, startTestLibrary } from '../support/library.ts';
import { freePort } from '../support/ports.ts';

const MAIN = join(import.meta.dirname, '../conformance/main.ts');

let library: Library;
let redirectUri: string;

beforeAll(async () => {
  redirectUri = `http://localhost:${await freePort()}/callback`;
  ({ library } = await startTestLibrary({ redirectUris: [redirectUri], content: { samples: 120 } }));
});
afterAll(() => library.close());

type Ended = { code: number | null; out: string; errors: string };

function conformance(args: string[], onOutput: (text: string) => void = () => {}): Promise<Ended> {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, NO_COLOR: '1' } });
  let out = '';
  let errors = '';
  child.stdout.on('data', (text) => {
    out += text;
  });
  child.stderr.on('data', (text) => {
    errors += text;
    onOutput(String(text));
  });
  return new Promise((resolve) => child.once('close', (code) => resolve({ code, out, errors })));
}

const addresses = () => ['--api', library.apiUrl, '--app', library.appUrl];
const only = (...checks: string[]) => checks.flatMap((check) => ['--only', check]);
const client = () => [
  ...['--client-id', library.clientId, '--client-secret', String(library.clientSecret)],
  ...['--redirect-uri', redirectUri],
];

describe('npm run conformance', () => {
  it('npm run conformance reports each check with its section, and exits with 0 if none failed', {
    tags: 'slow',
  }, async () => {
    const args = [...addresses(), '--admin', library.adminUrl!, ...only('4.6', 'me')];
    const { code, out } = await conformance(args);
    expect(out).toContain('✓ 4.6 Assets come newest first. newest-first');
    expect(out).toMatch(/nextCursor of the last page: null/);
    expect(out).toMatch(/\n\d+ passed, 0 failed, 0 not tried\n$/);
    expect(code).toBe(0);
  });

  it('a skipped check is counted separately and has a reason', async () => {
    const { code, out } = await conformance([...addresses(), ...client(), ...only('me', 'vtt')]);
    expect(out.match(/not tried: needs a consent: --user and --password, or --by-hand/g)).toHaveLength(2);
    expect(out).toContain('0 passed, 0 failed, 2 not tried');
    expect(code).toBe(0);
  });

  it('a failed check reports what was expected and found, and the exit code is 1', async () => {
    const wrong = [...addresses(), ...client(), '--json', ...only('client-id-and-secret', 'refresh-made-up')];
    const { code, out } = await conformance(wrong.map((it) => (it === library.clientSecret ? 'wrong' : it)));
    expect(JSON.parse(out)).toMatchObject({
      passed: 0,
      failed: 2,
      'not tried': 0,
      checks: [
        { id: 'client-id-and-secret', outcome: 'failed', expected: expect.stringContaining('svcs_'), found: 'wrong' },
        { id: 'refresh-made-up', section: '2.2', outcome: 'failed', expected: expect.stringContaining('status 400') },
      ],
    });
    expect(code).toBe(1);
  });

  it('--by-hand asks the user to consent in a browser, and continues at the redirect URI', async () => {
    const asked = only('code-and-state', 'vtt', 'logo-shown', 'code-once');
    const args = [...addresses(), ...client(), '--by-hand', '--consents', '2', ...asked];
    // The library consents automatically. A user would press a button.
    const { code, out, errors } = await conformance(args, (text) => {
      for (const [url] of text.matchAll(/http\S+\/oauth\/authorize\S+/g)) void fetch(url).then((it) => it.text());
    });
    expect(errors).toContain('Please open this address and allow access');
    expect(out).toContain('✓ 4.1');
    expect(out).toContain('✓ 4.8');
    expect(out).toContain('not tried: by hand, nobody but you sees the pages');
    expect(out).toContain('not tried: takes more consents than --consents allows');
    expect(out).toContain('2 passed, 0 failed, 2 not tried');
    expect(code).toBe(0);
  });

  it.each([
    ['no address', [], '--api'],
    ['no app', ['--api', 'http://127.0.0.1:9', '--app', 'http://127.0.0.1:9'], '--client-id'],
    [
      'no service',
      ['--api', 'http://127.0.0.1:9', '--app', 'http://127.0.0.1:9', '--client-id', 'x'],
      'cannot be reached',
    ],
    ['an invalid address', ['--api', 'here', '--app', 'there'], 'It is no URL'],
  ])('npm run conformance exits with 2 for %s', async (_what, args, message) => {
    const { code, errors } = await conformance(args);
    expect(errors).toContain(message);
    expect(code).toBe(2);
  });

  it('the conformance report contains no secret', { tags: 'slow' }, async () => {
    const args = [...addresses(), '--admin', library.adminUrl!, '--json', ...only('2.2', '2.3', '4.7')];
    const { code, out } = await conformance(args);
    expect(JSON.parse(out)).toMatchObject({ 'not tried': 0, failed: 0 });
    expect(code).toBe(0);
    expect(out).not.toMatch(/svc[acrs]_[\w-]{20}/);
    expect(out).not.toContain(String(library.clientSecret));
  });
});
