import { Argument, Command, Option } from 'commander';
import type { ApiClient } from './client.ts';
import { operatorVerbs } from './operator-verbs.ts';
import {
  collect,
  directory,
  examples,
  httpAddress,
  httpsAddress,
  type NewVerb,
  wholeNumber,
  words,
} from './options.ts';
import { printJson } from './output.ts';
import { completionScript, type Shell, shells } from './verbs/completion.ts';
import type { DemoOptions } from './verbs/demo.ts';
import { rotateKeys } from './verbs/keys.ts';
import type { LibraryVerbOptions } from './verbs/library.ts';

/** What the verbs that start something need, from main. */
export interface Verbs {
  start(role: 'all' | 'web' | 'worker', options: { json?: boolean }): Promise<void>;
  demo(options: DemoOptions): Promise<void>;
  library(options: LibraryVerbOptions): Promise<void>;
  doctor(options: { json?: boolean }): Promise<void>;
  rebuild(options: { json?: boolean }): Promise<void>;
  api(): Promise<ApiClient>;
}

/** Every verb with its words. Exit codes: 0 done, 1 failures were found, 2 usage or configuration, 3 not reachable. */
export function program(verbs: Verbs, version: string): Command {
  // Before the verbs, which take it over: a wrong word ends with the code of a wrong use, wherever it stands.
  const app = new Command('asset-mirror')
    .exitOverride()
    .description("Keeps a complete, verified copy of a company's media library in object storage.")
    .version(version)
    .showHelpAfterError('(add --help for what is possible)')
    .configureHelp({
      sortSubcommands: false,
      showGlobalOptions: false,
      // That each verb has options goes without saying.
      subcommandTerm: (command) =>
        [
          command.name(),
          ...command.registeredArguments.map((it) => {
            const name = `${it.name()}${it.variadic ? '...' : ''}`;
            return it.required ? `<${name}>` : `[${name}]`;
          }),
        ].join(' '),
    })
    .helpCommand(false)
    .addHelpText(
      'after',
      `
\`asset-mirror <verb> --help\` says more of each. They ask the service at ASSET_MIRROR_URL with ADMIN_TOKEN; on its own machine
both are found by themselves. Exit codes: 0 done, 1 differences or failures were found, 2 usage or configuration, 3 service
not reachable.`,
    );

  const verb: NewVerb = (name, text, more) => {
    const sentence = `${text[0]!.toUpperCase()}${text.slice(1)}.${more ? `\n\n${more}` : ''}`;
    return app.command(name).summary(text).description(sentence).option('--json', 'print JSON');
  };

  app.commandsGroup('Start something:');
  verb('start', 'run the service: web (connect flow, API) and workers (syncs, transfers)')
    .addOption(new Option('--role <role>', 'what this process does').choices(['all', 'web', 'worker']).default('all'))
    .action(({ role, ...options }) => verbs.start(role, options));

  verb('demo', 'library and mirror together, nothing to install: connect, mirror, look')
    .option('--once', 'exit when everything is mirrored')
    .option('--assets <n>', 'how many sample assets', wholeNumber(1, 100_000), 300)
    .option('--media <dir>', 'serve a folder of your own instead of samples', directory)
    .action((options) => verbs.demo(options));

  verb('library', 'run the library alone: the whole service of the specification')
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on', wholeNumber(0, 65_535), 8090)
    .option('--public-url <url>', 'where people and apps reach it, if it is elsewhere', httpAddress)
    .option('--admin-port <port>', 'port of the admin API for tests and demos', wholeNumber(0, 65_535))
    .option('--media <dir>', 'serve a folder', directory)
    .option('--synthetic <n>', 'serve so many made-up assets', wholeNumber(0, 10_000_000))
    .option('--seed <n>', 'other made-up content', wholeNumber(0, 2 ** 31))
    .addOption(
      new Option('--database <url>', 'PostgreSQL for its schema "library"; else one under DATA_DIR').env(
        'LIBRARY_DATABASE_URL',
      ),
    )
    .option('--in-memory', 'forget apps, grants and tokens at the end')
    .option('--client-id <id>', 'of the registered app')
    .option('--client-secret <secret>', 'of the registered app')
    .option('--rotate-secret', 'make a new secret for the registered app')
    .option('--redirect-uri <url>', 'of the registered app; may be repeated', collect)
    .option('--app-name <name>', 'of the registered app, as users see it', words)
    .option('--logo-url <url>', 'of the registered app: https, PNG or SVG', httpsAddress)
    .option('--website-url <url>', 'of the registered app', httpAddress)
    .option('--auto-consent', 'approve without pages')
    .action((options) => verbs.library(options));

  app.commandsGroup('Ask a running service, or have it do something:');
  operatorVerbs(verb, verbs.api);

  app.commandsGroup('Look after it:');
  verb('doctor', 'look at configuration, database, queue, bucket and library; say what to mend').action((options) =>
    verbs.doctor(options),
  );

  verb('rebuild', 'make the records again from those in the bucket; nothing is downloaded').action((options) =>
    verbs.rebuild(options),
  );

  const keys = app
    .command('keys')
    .summary('the keys with which tokens are encrypted')
    .description('The keys with which tokens are encrypted.')
    .helpCommand(false);
  keys
    .command('rotate')
    .description('Encrypt all tokens again, with the first of ENCRYPTION_KEYS.')
    .option('--json', 'print JSON')
    .action(async (options) => {
      if ((await rotateKeys(await verbs.api(), options)) > 0) process.exitCode = 1;
    });

  verb('completion', 'print a script that teaches a shell the verbs and options')
    .addArgument(new Argument('<shell>').choices(shells))
    .addHelpText('after', examples('source <(asset-mirror completion bash)', 'asset-mirror completion fish | source'))
    .action((shell: Shell, { json }: { json?: boolean }) => {
      const script = completionScript(app, shell);
      if (json) printJson({ shell, script });
      else process.stdout.write(script);
    });

  return app;
}
