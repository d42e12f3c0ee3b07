import { Option } from 'commander';
import { withAssetFilters } from './asset-filters.ts';
import { date, day, wholeNumber } from './options.ts';
import { type NewGroup, type NewVerb, setExitCode, type Verbs, verbsOf, withApi } from './verb.ts';
import { drill } from './verbs/drill.ts';
import { rotateKeys } from './verbs/encryption-keys.ts';
import { report } from './verbs/report.ts';
import { verify } from './verbs/verify.ts';
import { webhookVerbs } from './webhook-verbs.ts';

/** The verbs that check the mirror and repair it. */
export function checkVerbs(verb: NewVerb, group: NewGroup, verbs: Pick<Verbs, 'doctor' | 'offline' | 'api'>): void {
  verb(
    'verify',
    'compare library, database and bucket, and report every difference',
    'asset-mirror verify --repair',
    'Exits with 1 if there is a difference.',
  )
    .option('--connection <name>', 'only this connection')
    .option('--deep', 'read every object and compare its checksum')
    .option('--repair', 'fetch or write missing and different objects again')
    .option('--wait', 'with --repair: wait for the repairs, then verify once more')
    .option('--ignore-foreign', 'count objects that belong to no record, but do not report them as differences')
    .option('--inventory', 'write the inventory at the end')
    .option('--all', 'also print objects that are as expected')
    .action(withApi(verbs.api, verify));

  verb(
    'drill',
    'rehearse a recovery, and report how long it takes and what it would lose',
    'asset-mirror drill --sample 200',
    'Restores all records from the bucket into a scratch schema, reads some files, and decrypts all tokens and secrets. Changes no assets and no files. Exits with 1 if it fails.',
  )
    .option('--sample <n>', 'read the files of this many random assets (default: 20)', wholeNumber(1, 10_000))
    .action(withApi(verbs.api, drill));

  verb('report', 'write the assurance report of a month, as signed JSON and as a printable page', [
    'asset-mirror report --month 2026-10',
    'asset-mirror report --month 2026-10 --connection CONNECTION --out reports',
  ])
    .requiredOption('--month <month>', 'the month (UTC, required), such as 2026-10')
    .option('--connection <name>', 'only this connection')
    .option('--out <directory>', 'write the files to this directory', '.')
    .action(withApi(verbs.api, report));

  verb(
    'doctor',
    'check settings, database, queue, bucket and library, and say what to fix',
    'asset-mirror doctor',
    'Exits with 1 if there is an error to fix.',
  ).action((options) => verbs.doctor(options));

  verb(
    'rebuild',
    'restore a lost database from the records in the bucket',
    'asset-mirror rebuild',
    'Downloads nothing from the library. Run it again after an interruption; it continues where it stopped.',
  ).action(async (options) => {
    const { rebuild } = await import('./verbs/rebuild.ts');
    setExitCode(await rebuild(verbs.offline, options));
  });

  restoreVerb(verb, verbs.offline);

  exportVerb(verb, verbs.offline);

  attestVerb(verb, verbs.offline);

  verbsOf(group('keys', 'manage the keys that encrypt tokens and secrets'))(
    'rotate',
    'Encrypt all tokens and webhook secrets again with the first of ENCRYPTION_KEYS.',
    'rotate',
  ).action(withApi(verbs.api, rotateKeys));
  webhookVerbs(group('webhooks', 'manage webhook endpoints'), verbs.api);
}

function restoreVerb(verb: NewVerb, offline: Verbs['offline']): void {
  verb(
    'restore',
    'copy files of the mirror to a directory or another bucket, each verified',
    [
      'asset-mirror restore ASSET --version 20260131T120000000Z --to ~/restored',
      'asset-mirror restore --as-of 2026-01-31 --company COMPANY --to s3://bucket/prefix',
    ],
    'Reads the environment variables of `asset-mirror start`, but needs no running asset-mirror. ' +
      'Run it again after an interruption; it continues where it stopped.',
  )
    .argument('[asset...]', 'their ids, from `asset-mirror assets`')
    .requiredOption('--to <place>', 'a directory, or s3://bucket/prefix in the store of S3_ENDPOINT (required)')
    .option('--version <name>', 'this superseded file, from `asset-mirror versions` (default: the current one)')
    .option(
      '--as-of <date>',
      'the newest files that were mirrored by this date, such as 2026-01-31 (the end of that day, UTC)',
      date,
    )
    .option('--connection <name>', 'all assets of this connection')
    .option('--company <id>', 'all assets of this company')
    .option('--project <id>', 'all assets of this project')
    .option('--overwrite', 'replace files at the target that have other content')
    .action(async (assets, options) => {
      const { restore } = await import('./verbs/restore.ts');
      setExitCode(await restore(offline, assets, options));
    });
}

function exportVerb(verb: NewVerb, offline: Verbs['offline']): void {
  withAssetFilters(
    verb(
      'export',
      'copy files under readable names to a directory, another bucket or a .zip file, each verified',
      [
        'asset-mirror export --project PROJECT --to ~/films',
        'asset-mirror export --tag acme --names "{project}/{uploadDate:yyyy-MM}/{name}" --to acme.zip',
        'asset-mirror export --type photography --manifest csv',
      ],
      'Reads the environment variables of `asset-mirror start`, but needs no running asset-mirror. ' +
        'All conditions must match; without any, all assets are copied. ' +
        'Run it again after an interruption; it continues where it stopped, but a .zip file starts over.',
    ),
  )
    .option('--to <place>', 'a directory, a .zip file, or s3://bucket/prefix in the store of S3_ENDPOINT')
    .addOption(
      new Option(
        '--names <template>',
        'the names of the files: {name}, {id}, {type}, {project}, {projectId}, {company}, {companyId}, {uploadDate:yyyy-MM}',
      ).default('{company}/{project}/{name}'),
    )
    .option('--sidecars', 'also copy captions, transcripts and thumbnails')
    .option('--overwrite', 'replace files at the target that have other content')
    .addOption(
      new Option(
        '--manifest <format>',
        'print a list of the files instead of copying them: csv, or rclone (keys for --files-from-raw)',
      ).choices(['csv', 'rclone']),
    )
    .action(async (options) => {
      const { exportAssets, writeManifest } = await import('./verbs/export.ts');
      if (options.manifest) await writeManifest(offline, options.manifest, options);
      else setExitCode(await exportAssets(offline, options));
    });
}

function attestVerb(verb: NewVerb, offline: Verbs['offline']): void {
  verb(
    'attest',
    'check a copy against its signed manifests, without the database',
    [
      'asset-mirror attest',
      'asset-mirror attest ~/downloaded --key FINGERPRINT',
      'asset-mirror attest --asset ASSET > proof.json',
    ],
    'Checks signatures, chain, inventories, every object and every byte. Needs only the settings of the bucket, and writes nothing to it. ' +
      'Exits with 1 if anything is altered, missing, extra or unproven.',
  )
    .argument('[place]', 'a directory, or s3://bucket/prefix (default: STORAGE_URL)')
    .option('--key <fingerprint>', 'the key to trust (default: the key of the last manifest)')
    .option('--asset <id>', 'print a proof of this asset, for someone without the copy')
    .option('--day <day>', 'with --asset: the day of the manifest, such as 2026-01-31 (default: the last one)', day)
    .action(async (place, options) => {
      const { attest } = await import('./verbs/attest.ts');
      setExitCode(await attest(offline, place, options));
    });
}
