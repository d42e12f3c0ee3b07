import { Argument, Command } from 'commander';
import { accessVerbs } from './access-verbs.ts';
import { changeVerbs } from './change-verbs.ts';
import { checkVerbs } from './check-verbs.ts';
import { inspectVerbs } from './inspect-verbs.ts';
import { printError, printJson } from './output.ts';
import { removalVerbs } from './removal-verbs.ts';
import { runVerbs } from './run-verbs.ts';
import { examples, type NewGroup, type NewVerb, type Verbs } from './verb.ts';
import { completionScript, type Shell, shells } from './verbs/completion.ts';

const help = `
Run \`asset-mirror VERB --help\` for the options of a verb.

Most verbs talk to the running asset-mirror at ASSET_MIRROR_URL (default:
HOST:PORT). They sign in with ASSET_MIRROR_TOKEN, ADMIN_TOKEN, the session of
\`asset-mirror login\`, or, of an asset-mirror on this machine, the token in
DATA_DIR/admin-token, in this order. They do not read .env.

Exit codes:
  0  done
  1  failures or differences were found, the request was refused,
     or an unexpected error
  2  wrong usage, wrong token, unknown id, or a wrong setting
  3  asset-mirror is not reachable, or cannot answer now`;

/** The command line with all its verbs. Exit codes are in docs/reference/cli.md. */
export function program(verbs: Verbs, version: string): Command {
  // Verbs inherit exitOverride, so it comes before them.
  const app = new Command('asset-mirror')
    .exitOverride()
    // `restore --version` is not the version of the program.
    .enablePositionalOptions()
    // With --json, errors are JSON: see command.ts.
    .configureOutput({ writeErr: process.argv.includes('--json') ? () => {} : (text) => printError(text.trimEnd()) })
    .description("Keeps a complete, verified copy of a company's media library in object storage.")
    .version(version)
    .showHelpAfterError('(--help lists the possible options and values)')
    .configureHelp({
      sortSubcommands: false,
      showGlobalOptions: false,
      // The line that commander prints, but without "[options]".
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
    .addHelpText('after', help);

  const verb: NewVerb = (name, text, example, more) => {
    return app
      .command(name)
      .summary(text)
      .description(more ? `${sentence(text)}\n\n${more}` : sentence(text))
      .option('--json', 'print JSON')
      .addHelpText('after', examples(...[example].flat()));
  };

  const group: NewGroup = (name, summary) =>
    app.command(name).summary(summary).description(sentence(summary)).helpCommand(false);

  app.commandsGroup('Run:');
  runVerbs(verb, verbs);
  app.commandsGroup('Inspect:');
  inspectVerbs(verb, verbs.api);
  app.commandsGroup('Connect and change:');
  changeVerbs(verb, verbs.api);
  app.commandsGroup('Remove on purpose:');
  removalVerbs(verb, verbs.api);
  app.commandsGroup('Check and repair:');
  checkVerbs(verb, group, verbs);
  app.commandsGroup('Operators:');
  accessVerbs(verb, group, verbs);

  app.commandsGroup('Shell completion:');
  completionVerb(app, verb);

  return app;
}

const sentence = (text: string) => `${text[0]!.toUpperCase()}${text.slice(1)}.`;

function completionVerb(app: Command, verb: NewVerb): void {
  verb('completion', 'print a completion script for a shell', [
    'source <(asset-mirror completion bash)',
    'asset-mirror completion fish | source',
  ])
    .addArgument(new Argument('<shell>', 'the shell').choices(shells))
    .action((shell: Shell, { json }: { json?: boolean }) => {
      const script = completionScript(app, shell);
      if (json) printJson({ shell, script });
      else process.stdout.write(script);
    });
}
