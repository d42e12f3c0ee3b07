import { Option } from 'commander';
import { collect, directory, httpAddress, httpsAddress, nonEmptyText, size, wholeNumber } from './options.ts';
import type { NewVerb, Verbs } from './verb.ts';

/** The verbs that start something and run until they are stopped. */
export function runVerbs(verb: NewVerb, verbs: Pick<Verbs, 'start' | 'demo' | 'library'>): void {
  verb('start', 'run asset-mirror until SIGTERM or Ctrl-C', 'asset-mirror start --role worker')
    .addOption(
      new Option('--role <role>', 'what to run: web (connect flow, API, dashboard), worker (syncs, transfers), or all')
        .choices(['all', 'web', 'worker'])
        .default('all'),
    )
    .action(({ role, ...options }) => verbs.start(role, options));

  verb(
    'demo',
    'run the bundled library and a mirror of it, connect them and show the progress',
    'asset-mirror demo --assets 1000 --once',
    'Needs no settings. The files go to DATA_DIR/demo/mirror (default: data/demo/mirror).',
  )
    .option('--once', 'exit when everything is mirrored')
    .option('--assets <n>', 'number of sample assets', wholeNumber(1, 100_000), 300)
    .option('--media <dir>', 'serve your own folder instead of samples', directory)
    .action((options) => verbs.demo(options));

  verb(
    'library',
    'run the bundled library alone and print the settings that a mirror of it needs',
    'asset-mirror library --media ~/Videos',
    'Without --media and --synthetic it serves 300 samples.',
  )
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <port>', 'port to listen on', wholeNumber(0, 65_535), 8090)
    .option('--public-url <url>', 'address where people and apps reach it, if different', httpAddress)
    .option('--admin-port <port>', 'port of the admin API for tests (default: no admin API)', wholeNumber(0, 65_535))
    .option('--media <dir>', 'serve a folder', directory)
    .option('--synthetic <n>', 'serve n generated assets', wholeNumber(0, 10_000_000))
    .option('--max-size <size>', 'with --synthetic: maximum size of a file, such as 10MiB', size)
    .option('--seed <n>', 'the same number generates the same content', wholeNumber(0, 2 ** 31))
    .addOption(
      new Option('--database <url>', 'PostgreSQL that keeps apps, grants and tokens (default: one under DATA_DIR)').env(
        'LIBRARY_DATABASE_URL',
      ),
    )
    .option('--in-memory', 'forget apps, grants and tokens at exit')
    .option('--client-id <id>', 'client id of the registered app')
    .option('--client-secret <secret>', 'client secret of the registered app')
    .option('--rotate-secret', 'generate a new client secret')
    .option(
      '--redirect-uri <url>',
      'redirect URI of the app; may be repeated (default: http://localhost:8080/oauth/callback)',
      collect,
    )
    .option('--app-name <name>', 'name of the app, as users see it', nonEmptyText)
    .option('--logo-url <url>', 'logo of the app: https, PNG or SVG', httpsAddress)
    .option('--website-url <url>', 'website of the app', httpAddress)
    .option('--auto-consent', 'give consent at once, without showing pages')
    .action((options) => verbs.library(options));
}
