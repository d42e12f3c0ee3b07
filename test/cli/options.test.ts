import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { exitCodeOf } from '../../src/cli/failures.ts';
import { date, directory, startDate } from '../../src/cli/options.ts';
import { program } from '../../src/cli/program.ts';
import { demo } from '../../src/cli/verbs/demo.ts';
import { library } from '../../src/cli/verbs/library.ts';

const place = mkdtempSync(join(tmpdir(), 'asset-mirror-options-'));
afterAll(() => rmSync(place, { recursive: true, force: true }));
const file = join(place, 'film.mp4');
writeFileSync(file, '');

/** The library's options after a call of a verb, or its error message. */
async function served(words: string[]): Promise<string | undefined> {
  let media: string | undefined;
  let said = '';
  const take = async (options: { media?: string }) => {
    media = options.media;
  };
  const app = program({ library: take, demo: take } as never, '1.0.0');
  for (const verb of app.commands) verb.configureOutput({ writeErr: (text) => (said += text) });
  const { exitCode } = await app.parseAsync(words, { from: 'user' }).then(
    () => ({ exitCode: 0 }),
    (error) => error,
  );
  return exitCode === 0 ? media : said;
}

test.each(['library', 'demo'])('%s --media starts only with an existing directory', async (verb) => {
  expect(await served([verb, '--media', place])).toBe(place);
  const near = relative('.', place);
  expect(await served([verb, '--media', near])).toBe(near);
  expect(await served([verb, '--media', `${near}/none`])).toContain(
    `${place}/none does not exist. Name a directory that you can read.`,
  );
  expect(await served([verb, '--media', file])).toContain(`${file} is not a directory. Name`);
});

test.each([
  ['--public-url', 'nope', 'such as https://library.example.com'],
  ['--website-url', 'ftp://x', 'such as https://library.example.com'],
  ['--logo-url', 'http://x/y.png', 'an https address'],
  ['--app-name', ' ', 'a text that is not empty'],
])('library with %s %j does not start, and the error says what is expected', async (option, value, wanted) => {
  const said = await served(['library', option, value]);
  expect(said).toContain(option);
  expect(said).toContain(wanted);
});

test('library does not print the address of its database, which may have a password', async () => {
  const options = { database: 'postgers://u:geheim@h/db', host: '127.0.0.1', port: 0 };
  const error = await library(options as never, {} as never).catch((error) => error);
  expect([exitCodeOf(error), error.message]).toEqual([2, expect.stringContaining('LIBRARY_DATABASE_URL')]);
  expect(error.message).not.toContain('geheim');
});

test('--max-size takes a size, and is refused without --synthetic', async () => {
  expect(await served(['library', '--synthetic', '5', '--max-size', 'big'])).toContain(
    'Expected a size, such as 10MiB.',
  );
  const options = { maxSize: 1024, host: '127.0.0.1', port: 0 };
  await expect(library(options as never, {} as never)).rejects.toThrow('use --synthetic, too');
});

test('demo does not start with wrong settings, and names all of them', async () => {
  const never = () => expect.unreachable('nothing is started');
  const deps = { environment: { PORT: 'abc', LOG_LEVEL: 'loud' }, startDatabase: never, freePort: never };
  await expect(demo({ assets: 1 } as never, deps as never)).rejects.toMatchObject({
    problems: [expect.stringMatching(/^PORT is "abc"; expected/), expect.stringMatching(/^LOG_LEVEL is "loud"/)],
  });
});

test('library and demo refuse a directory that cannot be read', () => {
  const closed = mkdtempSync(join(place, 'closed-'));
  chmodSync(closed, 0);
  const script = `
    import { date, directory, startDate } from ${JSON.stringify(new URL('../../src/cli/options.ts', import.meta.url))};
    if (process.getuid() === 0) process.seteuid(65534);
    try { directory(${JSON.stringify(closed)}); } catch (error) { console.log(error.message); }`;
  chmodSync(place, 0o755);
  const said = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8' });
  expect(said).toBe(`${closed} is not readable for this user. Name a directory that you can read.\n`);
  chmodSync(closed, 0o700);
  expect(directory(closed)).toBe(closed);
});

test.each([
  ['2026-01-31', '2026-01-31T23:59:59.999Z'],
  ['2026-01-31T12:00Z', '2026-01-31T12:00:00.000Z'],
  ['2026-03-29T02:30:00+02:00', '2026-03-29T00:30:00.000Z'],
  ['2026-02-31', undefined],
  ['2026-02-30T12:00:00Z', undefined],
  ['2026-01-31T12:00:00', undefined],
  ['2026-01-31 PST', undefined],
  ['yesterday', undefined],
])('the date %s is %s', (text, expected) => {
  if (expected) expect(date(text).toISOString()).toBe(expected);
  else expect(() => date(text)).toThrow('Expected a date');
});

test.each([
  ['2026-01-31', '2026-01-31T00:00:00.000Z'],
  ['2026-01-31T12:00:00+02:00', '2026-01-31T10:00:00.000Z'],
  ['1769860800000', '2026-01-31T12:00:00.000Z'],
  ['20260131', undefined],
  ['2026-02-31', undefined],
  ['2026-01-31T12:00', undefined],
])('--since %j is the start of a day, a time with its zone, or epoch milliseconds', (text, expected) => {
  if (expected) expect(startDate(text).toISOString()).toBe(expected);
  else expect(() => startDate(text)).toThrow('Expected a date');
});
