import { type Command, Option } from 'commander';
import type { Asked } from './answers.ts';
import { collect, size } from './options.ts';

/** The conditions on assets, as options of a verb: those of the API, some under other names. */
export type AssetFilterOptions = Omit<Asked<'facets'>, 'connectionId' | 'companyId' | 'projectId' | 'q' | 'said'> & {
  connection?: string;
  company?: string;
  project?: string;
  search?: string;
};

const states = ['pending', 'processing', 'transferring', 'mirrored', 'unavailable', 'failed', 'gone'];

export const withAssetFilters = (verb: Command): Command =>
  verb
    .option('--connection <name>', 'of this connection')
    .option('--connection-tag <key=value>', 'of connections with this tag; may be repeated', collect)
    .option('--company <id>', 'of this company')
    .option('--project <id>', 'of this project')
    .addOption(new Option('--state <state>', 'in this state').choices(states))
    .option('--type <type>', 'of this type, such as videos or "brand assets"')
    .option('--tag <tag>', 'with this tag of the library; may be repeated', collect)
    .option('--mime-type <type>', 'of this MIME type, such as image/png or "image/*"')
    .option(
      '--uploaded-from <date>',
      'uploaded from this day (UTC) or this time with its zone, such as 2026-01-31T12:00:00Z',
    )
    .option('--uploaded-before <date>', 'uploaded before this day or time')
    .option('--min-size <size>', 'of at least this size, such as 10MiB', size)
    .option('--max-size <size>', 'of at most this size', size)
    .option('--skipped', 'only assets that a filter skips')
    .option('--search <text>', 'part of the name, ignoring case, or an id');

/** Turns the options into a filter of the API. `connectionId` is still what the user typed: an id, an e-mail or a name. */
export const filterOf = (options: AssetFilterOptions): Asked<'facets'> => ({
  connectionId: options.connection,
  connectionTag: options.connectionTag,
  companyId: options.company,
  projectId: options.project,
  state: options.state,
  type: options.type,
  tag: options.tag,
  mimeType: options.mimeType,
  uploadedFrom: options.uploadedFrom,
  uploadedBefore: options.uploadedBefore,
  minSize: options.minSize,
  maxSize: options.maxSize,
  skipped: options.skipped,
  q: options.search,
});
