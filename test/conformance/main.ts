import { Command, CommanderError, InvalidArgumentError } from 'commander';
import type { Check } from './check.ts';
import { counts, line, summary } from './report.ts';
import { run } from './run.ts';
import { CHECKS } from './sections/index.ts';
import type { Options } from './service.ts';
import { openWorld } from './world.ts';

type Arguments = Options & { only?: string[]; json?: boolean; list?: boolean };

const command = new Command('npm run conformance --')
  .description(
    `Test a running asset library against each sentence of the specification.

Exit code 0: nothing failed. 1: something failed. 2: wrong usage, or no service at the address.`,
  )
  .requiredOption('--api <url>', '{base_url} of the service', origin)
  .requiredOption('--app <url>', '{app_url} of the service', origin)
  .option('--client-id <id>', 'client id of an app registered for this (default with --admin: a new app)')
  .option('--client-secret <secret>', 'its client secret', process.env.CONFORMANCE_CLIENT_SECRET)
  .option('--redirect-uri <uri>', 'its redirect URI', 'http://localhost:8080/oauth/callback')
  .option(
    '--user <email>',
    'sign in and consent as this user in the forms of the service (default with --admin: a new user)',
  )
  .option('--password <password>', 'password of that user', process.env.CONFORMANCE_PASSWORD)
  .option('--by-hand', 'print the authorize URL for a person to open, and wait at the redirect URI')
  .option('--consents <number>', 'with --by-hand: maximum of consents; all checks need about 40', count)
  .option('--admin <url>', 'admin API of the bundled library, for states that nothing else can create')
  .option('--patient', 'wait for what takes up to two hours')
  .option('--profile <path>', 'page with Connected Apps, under {app_url}', '/profile')
  .option('--app-name <name>', 'name under which the app is registered')
  .option('--logo-url <url>', 'logo with which it is registered')
  .option('--scan <number>', 'maximum of assets to search for one of a kind', count, 2000)
  .option('--only <id…>', 'run these checks or sections only', (it: string, all: string[] = []) => [...all, it])
  .option('--list', 'list the checks, run none')
  .option('--json', 'print one JSON document instead of a report')
  .exitOverride();

process.exitCode = await main();

async function main(): Promise<number> {
  if (process.argv.includes('--list')) return listed();
  let options: Arguments;
  try {
    options = command.parse().opts<Arguments>();
    if (options.byHand === undefined && options.admin === undefined && options.clientId === undefined) {
      command.error('error: --client-id and --client-secret are needed, or --admin');
    }
  } catch (error) {
    return error instanceof CommanderError && error.exitCode === 0 ? 0 : 2;
  }
  const checks = CHECKS.filter((check) => isAsked(check, options.only));
  if (checks.length === 0) return complain(`there is no check or section ${options.only}`);
  const unreachable = await fetch(`${options.api}/api/v1/me`).then(() => undefined, causeOf);
  if (unreachable) return complain(`${options.api} cannot be reached: ${unreachable}`);
  return judge(options, checks);
}

async function judge(options: Arguments, checks: Check[]): Promise<number> {
  const { json, api, app } = options;
  const print = (text: string) => process.stdout.write(`${text}\n`);
  const world = await openWorld(options).catch((error: unknown) => complain(`--admin: ${causeOf(error)}`));
  if (typeof world === 'number') return world;
  if (!json) print(`${api}, ${checks.length} checks\n`);
  try {
    const outcomes = await run(world, checks, (outcome) => json || print(line(outcome)));
    const total = counts(outcomes);
    print(json ? JSON.stringify({ api, app, ...total, checks: outcomes }, null, 2) : summary(outcomes));
    return total.failed > 0 ? 1 : 0;
  } finally {
    await world.close();
  }
}

function listed(): number {
  for (const { id, section, says } of CHECKS) process.stdout.write(`${section.padEnd(4)} ${id.padEnd(26)} ${says}\n`);
  return 0;
}

function isAsked({ id, section }: Check, only: string[] | undefined): boolean {
  return !only || only.some((it) => it === id || it === section || section.startsWith(`${it}.`));
}

function complain(problem: string): number {
  process.stderr.write(`${problem}\n`);
  return 2;
}

function causeOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message}, ${cause.message || String((cause as { code?: string }).code)}` : message;
}

function origin(text: string): string {
  if (!URL.canParse(text)) throw new InvalidArgumentError('It is no URL.');
  return text.replace(/\/+$/, '');
}

function count(text: string): number {
  if (!/^[1-9]\d*$/.test(text)) throw new InvalidArgumentError('It is no number.');
  return Number(text);
}
